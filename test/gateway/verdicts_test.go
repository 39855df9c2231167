package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

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
	case c.Step == "restore_tail" && locktxn.NoSpace(err), tail && locktxn.LeaseGone(err):
		verdict = "again"
	case locktxn.NoSpace(err) && slices.Contains([]string{"cancel", "release_in_doubt", "leave_as_tail"}, c.Step):
		verdict = "withdraw"
	case locktxn.LeaseGone(err):
		verdict = "lease"
	case code == codes.Unauthenticated, message == "etcdserver: user name is empty",
		message == "etcdserver: revision of auth store is old":
		verdict = "login"
	case code != codes.ResourceExhausted && locktxn.Refused(err):
		verdict = "report"
	default:
		verdict = "resend"
	}
	return verdict, !locktxn.Refused(err)
}
