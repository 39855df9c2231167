package docs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const (
	demo    = "L211dGV4ZXMvZGVtby91dWlk" // /mutexes/demo/uuid
	readKey = `{"key": "` + demo + `"}`
	putKey  = `{"key": "` + demo + `", "value": "MQ=="}`

	timedOut = "etcdserver: request timed out"
	expired  = "etcdserver: invalid auth token"
)

// row is a line of the tables of errors in docs/gateway.md.
type row struct {
	status, code int
	message      string
}

func (r row) String() string { return fmt.Sprintf("%d, code %d, %q", r.status, r.code, r.message) }

// overtime reports whether the time limit of the request has ended. Its message depends on where it was noticed.
func (r row) overtime() bool {
	return r.status == http.StatusGatewayTimeout && r.code == int(codes.DeadlineExceeded)
}

// rows are the lines of the tables, by message.
func rows(t *testing.T) map[string]row {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateway.md")
	proctest.Must(t, err)
	all := map[string]row{}
	for _, found := range regexp.MustCompile("(?m)^\\| (\\d+) \\| (\\d+) \\| `([^`]+)` \\|").
		FindAllStringSubmatch(string(page), -1) {
		httpStatus, _ := strconv.Atoi(found[1])
		code, _ := strconv.Atoi(found[2])
		all[found[3]] = row{httpStatus, code, found[3]}
	}
	if len(all) < 13 {
		t.Fatalf("the page has only these errors: %v", all)
	}
	return all
}

// refusal takes an error of the gateway apart, which the two streams wrap once more.
func refusal(t *testing.T, r reply) row {
	t.Helper()
	o := object(t, r.text)
	if inner, wrapped := o["error"].(map[string]any); wrapped {
		o = inner
	}
	message, _ := o["message"].(string)
	code, _ := strconv.Atoi(fmt.Sprint(o["code"]))
	return row{r.status, code, message}
}

// onPage checks that an error is on the page as it came.
func onPage(t *testing.T, r reply) (message string) {
	t.Helper()
	got := refusal(t, r)
	if want := rows(t)[got.message]; got != want {
		t.Errorf("etcd answers %v, the page says %v", got, want)
	}
	return got.message
}

// Every line of the tables of errors on the page is what etcd answers.
func TestErrorsOfTheGateway(t *testing.T) {
	t.Parallel()
	provoked := map[string]bool{timedOut: true} // in TestMemberWithoutAMajority
	for _, r := range append(refusals(t), outOfSpace(t), atLearner(t)) {
		provoked[onPage(t, r)] = true
	}
	for _, r := range loginRefusals(t) {
		provoked[onPage(t, r)] = true
	}
	// They need an etcd that is slow in a certain way, or a race with a change of rights: only their words are checked.
	for _, err := range []error{rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCAuthOldRevision} {
		s := status.Convert(err)
		provoked[s.Message()] = true
		if want := rows(t)[s.Message()]; int(s.Code()) != want.code {
			t.Errorf("etcd's error is %v, the page says %v", err, want)
		}
	}
	for message := range rows(t) {
		if !provoked[message] {
			t.Errorf("nothing provokes %q", message)
		}
	}
}

func refusals(t *testing.T) []reply {
	t.Helper()
	c := &caller{endpoint: etcdtest.Start(t, etcdtest.Gateway()).Endpoint()}
	large := base64.StdEncoding.EncodeToString(make([]byte, 1600<<10))
	const op = `{"request_put": ` + putKey + `}`
	many := strings.TrimSuffix(strings.Repeat(`{"request_range": `+readKey+`}, `, 129), ", ")
	return []reply{
		c.post(t, "/v3/auth/authenticate", `{"name": "billing", "password": "secret"}`),
		c.post(t, "/v3/kv/txn", `{"success": [`+op+`, `+op+`]}`),
		c.post(t, "/v3/kv/put", `{"key": "`+demo+`", "value": "`+large+`"}`),
		c.post(t, "/v3/kv/txn", `{"success": [`+many+`]}`),
		c.post(t, "/v3/kv/put", `{"key": "`+demo+`", "lease": "12345"}`),
		c.post(t, "/v3/kv/nosuch", `{}`),
	}
}

func atLearner(t *testing.T) reply {
	t.Helper()
	c := &caller{endpoint: etcdtest.Cluster(t, 1, etcdtest.Gateway()).AddLearner(t)}
	return c.post(t, "/v3/kv/put", putKey)
}

func outOfSpace(t *testing.T) reply {
	t.Helper()
	s := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.Quota(8<<20))
	c := &caller{endpoint: s.Endpoint()}
	c.must(t, "/v3/lease/grant", `{"TTL": "3600", "ID": "7"}`)
	s.Fill(t, "/filler/")
	const absent = `{"compare": [{"key": "` + demo + `", "target": "CREATE", "create_revision": "0"}], `
	for _, r := range []struct {
		path, body string
		status     int
	}{
		{"/v3/kv/range", readKey, http.StatusOK},
		{"/v3/kv/deleterange", readKey, http.StatusOK},
		{"/v3/kv/txn", absent + `"success": [{"request_delete_range": ` + readKey + `}]}`, http.StatusOK},
		{"/v3/kv/txn", absent + `"failure": [{"request_put": ` + putKey + `}]}`, http.StatusTooManyRequests},
		{"/v3/lease/grant", `{"TTL": "3600"}`, http.StatusTooManyRequests},
		{"/v3/lease/keepalive", `{"ID": "7"}`, http.StatusOK},
		{"/v3/lease/revoke", `{"ID": "7"}`, http.StatusOK},
	} {
		if got := c.post(t, r.path, r.body); got.status != r.status {
			t.Errorf("out of space, etcd answers %s %s with %d %s", r.path, r.body, got.status, got.text)
		}
	}
	return c.post(t, "/v3/kv/put", putKey)
}

func loginRefusals(t *testing.T) []reply {
	t.Helper()
	s := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.Auth())
	s.AddUser(t, "billing", "secret", "/mutexes/", etcdtest.ReadWrite)
	c := &caller{endpoint: s.Endpoint()}
	all := []reply{
		c.post(t, "/v3/kv/range", readKey),
		c.post(t, "/v3/lease/keepalive", `{"ID": "1"}`),
		c.post(t, "/v3/auth/authenticate", `{"name": "billing", "password": "wrong"}`),
	}
	c.login(t, "billing", "secret")
	all = append(all, c.post(t, "/v3/kv/range", `{"key": "YQ=="}`))
	c.token = "expired"
	return append(all, c.post(t, "/v3/kv/range", readKey), c.post(t, "/v3/lease/keepalive", `{"ID": "1"}`))
}

// verdictCase is what an answer means. What follows from it besides, test/conformance compares.
type verdictCase struct {
	About, Step, Verdict string
	Doubt                bool
	Answer               struct {
		Status int
		Body   json.RawMessage
	}
}

// The verdicts in transactions.json on errors are those of the Go client's own functions. Of all other answers,
// test/conformance asks the clients in other languages.
func TestVerdictsOnErrors(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	errors := 0
	for _, text := range readFile(t, "transactions.json", 25, 100).Verdicts {
		var c verdictCase
		proctest.Must(t, json.Unmarshal(text, &c))
		seen[c.Step] = true
		if c.Answer.Status == http.StatusOK {
			continue
		}
		errors++
		if verdict, doubt := c.onError(t); verdict != c.Verdict || doubt != c.Doubt {
			t.Errorf("%s: %s: Go's verdict is %s, in doubt: %v; that of the file is %s, %v", c.Step, c.About, verdict,
				doubt, c.Verdict, c.Doubt)
		}
	}
	for _, step := range steps() {
		if !seen[step] {
			t.Errorf("no case has the step %s", step)
		}
	}
	if errors < 30 {
		t.Errorf("only %d cases are errors", errors)
	}
}

func (c verdictCase) onError(t *testing.T) (verdict string, doubt bool) {
	t.Helper()
	var code codes.Code
	message := ""
	if c.Answer.Body != nil {
		o := object(t, string(c.Answer.Body))
		message, _ = o["message"].(string)
		if n, isCode := o["code"].(json.Number); isCode {
			code = codes.Code(number(t, n.String()))
		}
	}
	if code == codes.OK { // not etcd's
		return "resend", true
	}
	err := status.Error(code, message)
	tail := c.Step == "leave_as_tail" || c.Step == "restore_tail"
	switch {
	case c.Step == "restore_tail" && locktxn.IsNoSpace(err), tail && locktxn.IsLeaseGone(err):
		verdict = "again"
	case locktxn.IsNoSpace(err) && slices.Contains([]string{"cancel", "release_in_doubt", "leave_as_tail"}, c.Step):
		verdict = "withdraw"
	case locktxn.IsLeaseGone(err):
		verdict = "lease"
	case code == codes.Unauthenticated, message == "etcdserver: user name is empty",
		message == "etcdserver: revision of auth store is old":
		verdict = "login"
	case locktxn.IsRefused(err) && !locktxn.MemberRefused(err):
		verdict = "report"
	default:
		verdict = "resend"
	}
	return verdict, !locktxn.IsRefused(err)
}
