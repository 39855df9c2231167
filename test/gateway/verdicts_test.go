package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The verdicts in transactions.json are what the page says of these answers, read with the functions of the Go client
// where it has some.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range readFile(t).Verdicts {
		t.Run(c.Step+": "+c.About, func(t *testing.T) {
			seen[c.Step] = true
			got := reader{t, layout(t), c.Step, c.Input}.read(c.Answer)
			if diff := gocmp.Diff(c.verdict, got); diff != "" {
				t.Errorf("the verdict differs (-file +Go):\n%s", diff)
			}
		})
	}
	for _, step := range steps() {
		if !seen[step] {
			t.Errorf("no case has the step %s", step)
		}
	}
}

// reader reads the answers to one step.
type reader struct {
	t    *testing.T
	keys protocol.Layout
	step string
	in   input
}

func layout(t *testing.T) protocol.Layout {
	t.Helper()
	l, err := protocol.NewLayout(protocol.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (r reader) read(a answer) verdict {
	r.t.Helper()
	if a.Status != http.StatusOK {
		return r.refusal(a)
	}
	answered := new(pb.TxnResponse)
	if err := protojson.Unmarshal(a.Body, answered); err != nil || answered.Header == nil { // not etcd's
		return verdict{Verdict: "resend", Doubt: true}
	}
	return r.verdict((*clientv3.TxnResponse)(answered))
}

// refusal is what an error says.
func (r reader) refusal(a answer) verdict {
	r.t.Helper()
	var e struct {
		Code    codes.Code
		Message string
	}
	if a.Body != nil {
		o := object(r.t, string(a.Body))
		e.Message, _ = o["message"].(string)
		if code, isCode := o["code"]; isCode {
			e.Code = codes.Code(number(r.t, toJSON(r.t, code)))
		}
	}
	if e.Code == codes.OK {
		return verdict{Verdict: "resend", Doubt: true}
	}
	err := status.Error(e.Code, e.Message)
	v := verdict{Verdict: "resend", Doubt: !locktxn.Refused(err)}
	tail := r.step == "leave_as_tail" || r.step == "restore_tail"
	switch {
	case tail && r.step == "restore_tail" && locktxn.NoSpace(err), tail && locktxn.LeaseGone(err):
		v.Verdict = "again"
	case locktxn.NoSpace(err) && slices.Contains([]string{"cancel", "release_in_doubt", "leave_as_tail"}, r.step):
		v.Verdict = "withdraw"
	case locktxn.LeaseGone(err):
		v.Verdict = "lease"
	case e.Code == codes.Unauthenticated, loginNeeded(e.Message):
		v.Verdict = "login"
	case e.Code != codes.ResourceExhausted && locktxn.Refused(err):
		v.Verdict = "report"
	}
	return v
}

func loginNeeded(message string) bool {
	return message == "etcdserver: user name is empty" || message == "etcdserver: revision of auth store is old"
}

// verdict is what an answer of etcd's says.
func (r reader) verdict(a *clientv3.TxnResponse) verdict {
	switch revision := text(a.Header.Revision); r.step {
	case "acquire", "try":
		if a.Succeeded {
			return verdict{Verdict: "held", Token: revision}
		}
		return r.refused(a)
	case "alive", "release", "release_in_doubt":
		return r.holds(a)
	case "cancel":
		return verdict{Verdict: "cancelled"}
	case "withdraw", "restore_tail":
		return verdict{Verdict: "again"}
	case "join":
		return r.joined(a)
	case "look", "scan":
		return r.look(a)
	case "turn":
		if a.Succeeded {
			return verdict{Verdict: "held", Token: revision}
		}
		return r.noTurn(a)
	case "leave":
		if !a.Succeeded {
			return verdict{Verdict: "left"}
		}
		return verdict{Verdict: "as_tail", Older: waiterOf(locktxn.Newest(r.keys, kvs(a, 0), r.in.UUID))}
	case "leave_as_tail":
		if !a.Succeeded {
			return verdict{Verdict: "again"}
		}
		return verdict{Verdict: "left"}
	}
	r.t.Fatalf("there is no step %q", r.step)
	return verdict{}
}

// holds is what the holder's own steps say.
func (r reader) holds(a *clientv3.TxnResponse) verdict {
	first := 0
	if r.step == "release_in_doubt" {
		first = 1 // after the tombstone
	}
	switch {
	case a.Succeeded && r.step == "alive":
		return verdict{Verdict: "still_held"}
	case a.Succeeded:
		return verdict{Verdict: "released"}
	}
	for _, kv := range kvs(a, first+1) {
		if e, err := protocol.Unmarshal[metadata.Ending](kv.Value); err == nil && e.Ended != "" {
			return verdict{Verdict: "lost", Reason: e.Ended}
		}
	}
	switch holder, held := r.holder(a, first); {
	case r.in.Seen != "" && holder.Value == r.in.UUID && text(holder.CreateRevision) == r.in.Token:
		return verdict{Verdict: "again"}
	case r.step != "alive" && r.in.Unanswered:
		return verdict{Verdict: "released"}
	case held:
		return verdict{Verdict: "lost", Reason: "replaced"}
	}
	return verdict{Verdict: "lost", Reason: "deleted"}
}

// holder is the uuid field in the record that the operation with this number read.
func (r reader) holder(a *clientv3.TxnResponse, operation int) (holder metadata.Field, held bool) {
	for _, f := range locktxn.Fields(r.keys, locktxn.Keys(a, operation)) {
		if f.Name == metadata.FieldUUID {
			return f, true
		}
	}
	return holder, false
}

// refused is what a refused acquisition says.
func (r reader) refused(a *clientv3.TxnResponse) verdict {
	switch holder, held := r.holder(a, 0); {
	case held && holder.Value == r.in.UUID:
		return verdict{Verdict: "held_by_earlier_send", Token: text(holder.CreateRevision)}
	case held:
		return verdict{Verdict: "refused", Holder: &holder.Value}
	}
	return verdict{Verdict: "refused", Delayed: len(kvs(a, 1)) > 0}
}

func (r reader) joined(a *clientv3.TxnResponse) verdict {
	if a.Succeeded {
		tail := a.Responses[1].GetResponsePut().GetPrevKv()
		return verdict{Verdict: "joined", Position: text(a.Header.Revision), Before: string(tail.GetValue())}
	}
	for _, kv := range kvs(a, 0) {
		return verdict{Verdict: "joined_by_earlier_send", Position: text(kv.CreateRevision)}
	}
	return verdict{Verdict: "lost"}
}

// look is what a look or a scan says.
func (r reader) look(a *clientv3.TxnResponse) verdict {
	own, holder := kvs(a, 0), kvs(a, 1)
	tail, delay := kvs(a, 2), kvs(a, 3)
	holds := func(uuid string) bool { return len(holder) > 0 && string(holder[0].Value) == uuid }
	var ahead, newest []*mvccpb.KeyValue
	if len(a.Responses) > 4 {
		ahead = kvs(a, 4)
	}
	if r.step == "scan" {
		newest = kvs(a, 5)
	}
	v := verdict{Verdict: "wait"}
	switch {
	case holds(r.in.UUID):
		return verdict{Verdict: "held_by_earlier_send", Token: text(holder[0].CreateRevision)}
	case len(own) == 0:
		return verdict{Verdict: "lost"}
	case len(ahead) > 0:
		v.Watch = string(ahead[0].Key)
	case r.in.Before != "" && !holds(r.in.Before):
		return verdict{Verdict: "scan"}
	case len(holder) > 0:
		v.Watch = r.keys.Field(r.in.Lock, metadata.FieldUUID)
	case len(delay) > 0:
		v.Watch = r.keys.Delay(r.in.Lock)
	default:
		return verdict{Verdict: "turn"}
	}
	switch {
	case len(tail) > 0:
	case r.step == "look":
		return verdict{Verdict: "scan"}
	default:
		v.Restore = waiterOf(locktxn.Newest(r.keys, newest, ""))
	}
	return v
}

func (r reader) noTurn(a *clientv3.TxnResponse) verdict {
	if v := r.refused(a); v.Verdict == "held_by_earlier_send" {
		return v
	}
	for _, kv := range kvs(a, 1) {
		if text(kv.CreateRevision) == r.in.Position {
			return verdict{Verdict: "again"}
		}
	}
	return verdict{Verdict: "lost"}
}

func kvs(a *clientv3.TxnResponse, operation int) []*mvccpb.KeyValue {
	return locktxn.Keys(a, operation).Kvs
}

func waiterOf(l locktxn.Last) *waiter {
	if l.Revision == 0 {
		return nil
	}
	return &waiter{Ticket: l.UUID, CreateRevision: text(l.Revision), Lease: text(int64(l.Lease))}
}

func text(n int64) string { return strconv.FormatInt(n, 10) }
