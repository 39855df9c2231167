package docs

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// What docs/gateway.md says in words.

func TestRequestFormatVariants(t *testing.T) {
	t.Parallel()
	c := &caller{endpoint: etcdtest.Start(t, etcdtest.Gateway()).Endpoint()}
	c.must(t, "/v3/kv/put", putKey)
	for about, compare := range map[string]string{
		"a number for text": `{"key": "` + demo + `", "target": "CREATE", "result": "EQUAL",
			"create_revision": 2}`,
		"camel case": `{"key": "` + demo + `", "target": "CREATE", "result": "EQUAL",
			"createRevision": "2"}`,
		"without a default result": `{"key": "` + demo + `", "target": "CREATE", "create_revision": "2"}`,
	} {
		if r := c.must(t, "/v3/kv/txn", `{"compare": [`+compare+`]}`); r["succeeded"] != true {
			t.Errorf("%s: the compare does not hold", about)
		}
	}
	fails := `[{"key": "` + demo + `", "target": "CREATE", "result": "EQUAL", "create_revision": "7"}]`
	if r := c.must(t, "/v3/kv/txn", `{"compare": `+fails+`}`); r["succeeded"] != nil {
		t.Errorf("a compare that does not hold gives %v", r)
	}
	if r := c.must(t, "/v3/kv/txn", `{"compares": `+fails+`}`); r["succeeded"] != true {
		t.Errorf("with a member that it does not know, etcd says %v", r)
	}
}

func TestFilteredWatchHasOnlyDeletions(t *testing.T) {
	t.Parallel()
	c := &caller{endpoint: etcdtest.Start(t, etcdtest.Gateway()).Endpoint()}
	w := c.stream(t, "/v3/watch", strings.NewReader(`{"create_request": {"key": "`+demo+`", "filters": ["NOPUT"]}}`))
	w.next(t)
	c.must(t, "/v3/kv/put", putKey)
	c.must(t, "/v3/kv/deleterange", readKey)
	if first := w.next(t); !strings.Contains(first, "DELETE") {
		t.Errorf("the first event is %s", first)
	}
}

// Over HTTP/1.1 nothing is answered until the body of the request has ended.
func TestWatchAnswersAfterItsRequestEnded(t *testing.T) {
	t.Parallel()
	c := &caller{endpoint: etcdtest.Start(t, etcdtest.Gateway()).Endpoint()}
	other := c.stream(t, "/v3/watch", strings.NewReader(`{"create_request": `+readKey+`}`))
	other.next(t)
	body, writer := io.Pipe()
	opened := make(chan stream, 1)
	go func() { opened <- c.stream(t, "/v3/watch", body) }()
	_, err := io.WriteString(writer, `{"create_request": `+readKey+`}`)
	proctest.Must(t, err)
	c.must(t, "/v3/kv/put", putKey)
	other.next(t)
	select {
	case early := <-opened:
		t.Errorf("before its request has ended, a watch says %s", early.next(t))
		return
	default:
	}
	writer.Close()
	if first := (<-opened).next(t); !strings.Contains(first, "created") {
		t.Errorf("the watch begins with %s", first)
	}
}

// A token ends with its user's password, and with its member. What was opened with it goes on.
func TestWatchOutlivesItsToken(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.Auth())
	s.AddUser(t, "billing", "secret", "/mutexes/", etcdtest.ReadWrite)
	c := &caller{endpoint: s.Endpoint()}
	c.login(t, "billing", "secret")
	w := c.stream(t, "/v3/watch", strings.NewReader(`{"create_request": `+readKey+`}`))
	w.next(t)
	root := s.Client(t)
	_, err := root.UserChangePassword(t.Context(), "billing", "another")
	proctest.Must(t, err)
	if got := onPage(t, c.post(t, "/v3/kv/range", readKey)); got != expired {
		t.Errorf("after the change of the password, etcd says %q", got)
	}
	_, err = root.Put(t.Context(), "/mutexes/demo/uuid", "1")
	proctest.Must(t, err)
	if event := w.next(t); !strings.Contains(event, demo) {
		t.Errorf("the watch says %s", event)
	}
	refused := c.stream(t, "/v3/watch", strings.NewReader(`{"create_request": `+readKey+`}`)).next(t)
	for _, want := range []string{`"created"`, `"canceled"`, "code = Unauthenticated desc = " + expired} {
		if !strings.Contains(refused, want) {
			t.Errorf("a new watch with the old token says %s, without %s", refused, want)
		}
	}
	c.login(t, "billing", "another")
	c.must(t, "/v3/kv/range", readKey)
	s.Restart(t)
	if got := onPage(t, c.post(t, "/v3/kv/range", readKey)); got != expired {
		t.Errorf("after a restart of the member, etcd says %q", got)
	}
}

// With users, a client certificate must have no common name; a password works beside it. Without users it may have one.
func TestCertificateWithoutACommonName(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.ClientCerts(), etcdtest.Auth())
	s.AddUser(t, "billing", "secret", "/mutexes/", etcdtest.ReadWrite)
	c := withCertificate(t, s, "")
	c.login(t, "billing", "secret")
	c.must(t, "/v3/kv/range", readKey)
	named := withCertificate(t, s, "billing")
	named.token = c.token
	if r := named.post(t, "/v3/kv/range", readKey); r.status != http.StatusBadRequest {
		t.Errorf("a certificate with a common name and a token give %d %s", r.status, r.text)
	}
	withoutUsers := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.ClientCerts())
	withCertificate(t, withoutUsers, "billing").must(t, "/v3/kv/range", readKey)
}

// A token, a lease and a write are those of the cluster, whichever member gave them. A member that lags behind may not
// know the token yet.
func TestEveryMemberAcceptsEveryRequest(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3, etcdtest.Gateway(), etcdtest.Auth())
	var members []*caller
	for _, endpoint := range m.Endpoints() {
		members = append(members, &caller{endpoint: endpoint})
	}
	for i, c := range members {
		c.login(t, etcdtest.RootUser, etcdtest.RootPassword)
		next := &caller{endpoint: members[(i+1)%3].endpoint, token: c.token}
		lease := c.must(t, "/v3/lease/grant", `{"TTL": "60"}`)["ID"].(string)
		proctest.Eventually(t, "a keepalive by another member", func() error {
			return kept(t, next.post(t, "/v3/lease/keepalive", `{"ID": "`+lease+`"}`))
		})
	}
	const acquire = `{"compare": [{"key": "` + demo + `", "target": "CREATE", "result": "EQUAL",
			"create_revision": "0"}],
		"success": [{"request_put": ` + putKey + `}], "failure": [{"request_range": ` + readKey + `}]}`
	for i, c := range members {
		if done := c.must(t, "/v3/kv/txn", acquire)["succeeded"] == true; done != (i == 0) {
			t.Errorf("the transaction succeeded at member %d: %v", i, done)
		}
	}
}

// A member that has lost the majority answers late, and only a watch with hasleader learns of it.
func TestMemberWithoutAMajority(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3, etcdtest.Gateway())
	leader := m.Leader(t)
	c := &caller{endpoint: m.Endpoints()[leader]}
	watch := func() stream {
		return c.stream(t, "/v3/watch", strings.NewReader(`{"create_request": `+readKey+`}`),
			"Grpc-Metadata-hasleader: true")
	}
	open := watch()
	open.next(t)
	others(m, leader, m.Pause)
	answered := make(chan reply, 1)
	go func() { answered <- c.post(t, "/v3/kv/put", putKey) }()
	if got := refusal(t, c.post(t, "/v3/kv/put", putKey, "Grpc-Timeout: 200m")); !got.overtime() {
		t.Errorf("past the time limit, etcd says %v", got)
	}
	const noLeader = "etcdserver: no leader"
	if last := open.next(t); refusal(t, reply{0, last}) != (row{0, 14, noLeader}) {
		t.Errorf("the watch says %s", last)
	}
	if _, more := <-open.lines; more {
		t.Error("the watch goes on without a leader")
	}
	late := watch()
	if first := late.next(t); late.status != http.StatusServiceUnavailable || !strings.Contains(first, noLeader) {
		t.Errorf("without a leader, a new watch says %d %s", late.status, first)
	}
	if got := refusal(t, <-answered); got != rows(t)[timedOut] && !got.overtime() {
		t.Errorf("without a time limit, etcd says %v", got)
	}
}

// kept reports whether a lease of 60 seconds was kept alive. The only other answer may be that the token is not known.
func kept(t *testing.T, r reply) error {
	t.Helper()
	if r.status == http.StatusOK {
		if result := object(t, r.text)["result"].(map[string]any); result["TTL"] != "60" {
			t.Errorf("a keepalive says %v", result)
		}
		return nil
	}
	if message := onPage(t, r); message != expired {
		t.Errorf("a keepalive says %q", message)
	}
	return errors.New(r.text)
}

func others(m *etcdtest.Members, but int, do func(int)) {
	for i := range 3 {
		if i != but {
			do(i)
		}
	}
}
