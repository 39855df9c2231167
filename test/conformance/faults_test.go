//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// fault is a rule that a Go driver breaks on purpose, to show that the suite detects it.
type fault struct {
	name   string
	about  string
	check  string // the check that has to refuse it
	behind bool   // in a pair behind a sound Go client, otherwise alone
	says   string // what the check has to say
	short  bool   // belongs to the short set, too

	request func(*goRequest)                                   // changes a request
	said    func(map[string]any) map[string]any                // changes an answer or an event; nil is silence
	txn     func(*pb.TxnRequest)                               // changes a transaction
	answer  func(*pb.TxnRequest, *pb.TxnResponse, error) error // changes what etcd says to it
	took    func(time.Duration)                                // learns how long its answer took
	options []mutex.Option                                     // of each acquisition
	ends    func(*goDriver)                                    // at the end of the input
	leaves  bool                                               // at a signal, what it has stays
}

var faults = append(kindFaults, []*fault{
	{name: "names", about: "segments are not escaped", check: "vectors: names", says: "the segment of", short: true,
		said: instead("segment", "as/it/is")},
	{name: "refusals", about: "a long purpose is cut", check: "bad input", says: "a purpose of more than 1 KiB",
		short: true, request: func(r *goRequest) { r.Purpose = r.Purpose[:min(len(r.Purpose), 100)] }},
	{name: "token", about: "the token is a number of the process's own", check: "take and give back",
		says: "the record is of", short: true, said: instead("token", 1)},
	{name: "progress", about: "alive writes no progress", check: "take and give back", says: "after alive the record",
		short: true, txn: eachBranch(dropPuts("/alive"))},
	{name: "holder", about: "a refusal does not say who holds the lock", check: "held by another", behind: true,
		says: "was told", short: true, said: instead("holder", nil)},
	{name: "pod", about: "a container is named without its pod", check: "which process holds it", short: true,
		says: "without a pod", txn: metadataMember("container", "main")},
	{name: "count", about: "the ticket of the holder counts as one that waits", check: "held by another",
		behind: true, says: "when the waiter has the lock", short: true,
		said: func(m map[string]any) map[string]any {
			if m["error"] == "held" {
				m["waiting"] = 1
			}
			return m
		}},
	{name: "compare of uuid", about: "an acquire does not compare C(uuid) = 0", check: "held by another", behind: true,
		says: "want held", short: true, txn: dropCompares("/uuid", pb.Compare_CREATE, true)},
	{name: "compare of tail", about: "an acquire does not compare C(tail) = 0", check: "a newcomer stays behind",
		says: "want held, no holder", short: true, txn: dropCompares("/.tail", pb.Compare_CREATE, true)},
	{name: "compare of token", about: "alive and release do not compare C(uuid) = T", check: "same uuid, another token",
		says: "want lost", short: true, txn: dropCompares("/uuid", pb.Compare_CREATE, false)},
	{name: "compare of deadline", about: "alive does not compare V(auto_unlock_at)", check: "deadlines never move back",
		says: "auto_unlock_at is", short: true, txn: dropCompares("/auto_unlock_at", pb.Compare_VALUE, false)},
	{name: "compare of tombstone", about: "an acquire does not compare C(.cancelled)", check: "ghost after release",
		says: "a late send took the lock", txn: dropCompares("/.cancelled/", pb.Compare_CREATE, true)},
	{name: "cancel", about: "an attempt with an unanswered send is not cancelled", check: "ghost after release",
		says: "a late send took the lock", txn: eachBranch(dropPuts("/.cancelled/"))},
	{name: "cancel after loss", about: "the same, after a loss", check: "ghost after loss",
		says: "a late send took the lock", txn: eachBranch(dropPuts("/.cancelled/"))},
	{name: "cancel after refusal", about: "the same, after a refusal", check: "ghost after refusal",
		says: "a late send took the lock", txn: eachBranch(dropPuts("/.cancelled/"))},
	{name: "resend", about: "what got no answer is not sent again", check: "lost request", says: "refused", short: true,
		answer: giveUp},
	{name: "own uuid", about: "its own uuid is not recognised where the holders are read", check: "sent twice",
		says: "timeout", answer: forgetOwn},
	{name: "queue", about: "a waiter takes the lock whenever it is free", check: "order in a mixed queue", behind: true,
		says: "1 tickets for", options: []mutex.Option{mutex.WithoutQueue()}},
	{name: "clock of the turn", about: "locked_at is when the wait began", check: "order in a mixed queue",
		behind: true, says: "it counts from the turn", txn: agedTurn},
	{name: "tail", about: "who leaves as the tail deletes it", check: "the tail is put back",
		says: "the tail: not within", txn: leaveNoTail},
	{name: "lean look", about: "a waiter reads the queue whenever it looks", check: "behind a hundred",
		says: "it read the queue", short: true, txn: scanning},
	{name: "event of loss", about: "a loss is not told", check: "force unlock", says: `no event "lost"`,
		said: event("lost", func(map[string]any) map[string]any { return nil })},
	{name: "reason", about: "every loss is a deletion", check: "force unlock", says: `was lost for "deleted"`,
		short: true, said: instead("reason", "deleted")},
	{name: "loss in release", about: "a release of a lost lock says nothing", check: "deleted by hand",
		says: "release of a lost lock", short: true, said: func(m map[string]any) map[string]any {
			if m["error"] == "lost" {
				delete(m, "error")
			}
			return m
		}},
	{name: "margin", about: "the end of the time is told when it is over", check: "cut off",
		says: "the lock could be removed", said: event("lost", func(m map[string]any) map[string]any {
			time.Sleep(4 * time.Second)
			return m
		})},
	{name: "reading", about: "a holder reads its record only once", check: "silent watch of a holder",
		says: `no event "lost"`, answer: readOnce()},
	{name: "compare of delay", about: "a lock in its delay is taken", check: "lock delay", short: true,
		says: "want held, no holder, delayed", txn: dropCompares("/.delays/", pb.Compare_CREATE, true)},
	{name: "compare of progress", about: "a heartbeat does not compare M(alive)", check: "heartbeat",
		says: "a heartbeat is no progress, and it made", txn: dropCompares("/alive", pb.Compare_MOD, false)},
	{name: "lease of tombstones", about: "a tombstone has no lease", check: "ghost after release", says: "has no lease",
		short: true, txn: eachBranch(unleased("/.cancelled/"))},
	slowClock(),
	{name: "event of a request", about: "the holder is not told that it is asked", check: "asked to finish",
		says: `no event "asked"`, said: event("asked", func(map[string]any) map[string]any { return nil })},
	{name: "other members", about: "only the first endpoint is used", check: "three members, one dies",
		says:    "without member 0",
		request: func(r *goRequest) { r.Endpoints = r.Endpoints[:min(1, len(r.Endpoints))] }},
	{name: "death", about: "the locks are released at the end of the input", check: "driver ends",
		says: "the end of a process ended its hold", ends: (*goDriver).releaseAll, short: true},
	{name: "release at the end", about: "a signal ends the process at once", check: "orderly end",
		says: "it left its lock", leaves: true, short: true},
	{name: "bounds", about: "a wait lasts two seconds longer", check: "a wait bounds the call", says: "it took",
		request: func(r *goRequest) {
			if r.Wait != nil && *r.Wait > 0 {
				*r.Wait += 2
			}
		}},
	{name: "harmless texts", about: "what others write is passed on as it is", check: "texts of others", says: "is raw",
		short: true, said: instead("message", "\x1b[31m")},
}...)

// faultNamed returns the fault with this name, or an empty one for a sound driver.
func faultNamed(name string) *fault {
	if name == withoutQueue.name {
		return withoutQueue
	}
	i := slices.IndexFunc(faults, func(f *fault) bool { return f.name == name })
	if i < 0 {
		return &fault{}
	}
	return faults[i]
}

func (f *fault) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		to *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		txn, isTxn := req.(*pb.TxnRequest)
		if isTxn && f.txn != nil {
			f.txn(txn)
		}
		began := time.Now()
		err := send(ctx, method, req, reply, to, opts...)
		if isTxn && f.took != nil {
			f.took(time.Since(began))
		}
		if isTxn && f.answer != nil {
			err = f.answer(txn, reply.(*pb.TxnResponse), err)
		}
		return err
	})}
}

// instead replaces the value of an existing member.
func instead(name string, value any) func(map[string]any) map[string]any {
	return func(m map[string]any) map[string]any {
		if _, has := m[name]; has {
			m[name] = value
		}
		return m
	}
}

func event(kind string, change func(map[string]any) map[string]any) func(map[string]any) map[string]any {
	return func(m map[string]any) map[string]any {
		if m["event"] == kind {
			return change(m)
		}
		return m
	}
}

func putsUUID(t *pb.TxnRequest) bool {
	return slices.ContainsFunc(t.Success, func(op *pb.RequestOp) bool {
		return strings.HasSuffix(string(op.GetRequestPut().GetKey()), "/uuid")
	})
}

// dropCompares drops compares of such keys from transactions that take a lock, or from the others.
func dropCompares(key string, target pb.Compare_CompareTarget, takes bool) func(*pb.TxnRequest) {
	var drop func(t *pb.TxnRequest)
	drop = func(t *pb.TxnRequest) {
		t.Compare = slices.DeleteFunc(t.Compare, func(c *pb.Compare) bool {
			return c.Target == target && strings.Contains(string(c.Key), key)
		})
		for _, op := range slices.Concat(t.Success, t.Failure) {
			if inner := op.GetRequestTxn(); inner != nil {
				drop(inner)
			}
		}
	}
	return func(t *pb.TxnRequest) {
		if putsUUID(t) == takes {
			drop(t)
		}
	}
}

func eachBranch(change func([]*pb.RequestOp) []*pb.RequestOp) func(*pb.TxnRequest) {
	return func(t *pb.TxnRequest) {
		t.Success = change(t.Success)
		t.Failure = change(t.Failure)
	}
}

func dropPuts(key string) func([]*pb.RequestOp) []*pb.RequestOp {
	return dropping(key, func(op *pb.RequestOp) []byte { return op.GetRequestPut().GetKey() })
}

// dropDeletes drops deletions of such keys.
func dropDeletes(key string) func([]*pb.RequestOp) []*pb.RequestOp {
	return dropping(key, func(op *pb.RequestOp) []byte { return op.GetRequestDeleteRange().GetKey() })
}

func dropping(key string, of func(*pb.RequestOp) []byte) func([]*pb.RequestOp) []*pb.RequestOp {
	return func(ops []*pb.RequestOp) []*pb.RequestOp {
		return slices.DeleteFunc(ops, func(op *pb.RequestOp) bool {
			if inner := op.GetRequestTxn(); inner != nil {
				eachBranch(dropping(key, of))(inner)
			}
			return strings.Contains(string(of(op)), key)
		})
	}
}

// agedTurn makes a record claim that its holder asked for the lock a minute ago.
func agedTurn(t *pb.TxnRequest) {
	for _, op := range t.Success {
		if put := op.GetRequestPut(); strings.HasSuffix(string(put.GetKey()), "/metadata") {
			put.Value = lockedAt.ReplaceAllFunc(put.Value, func(member []byte) []byte {
				at, err := metadata.ParseTime(string(lockedAt.FindSubmatch(member)[1]))
				if err != nil {
					panic(err)
				}
				return []byte(`"locked_at":"` + metadata.FormatTime(at.Add(-time.Minute)) + `"`)
			})
		}
	}
}

var lockedAt = regexp.MustCompile(`"locked_at":"([0-9.]+)"`)

// metadataMember adds a member to the client's document.
func metadataMember(name, value string) func(*pb.TxnRequest) {
	return func(t *pb.TxnRequest) {
		for _, op := range t.Success {
			if put := op.GetRequestPut(); strings.HasSuffix(string(put.GetKey()), "/metadata") {
				put.Value = fmt.Appendf(nil, `{%q:%q,%s`, name, value, put.Value[1:])
			}
		}
	}
}

// leaveNoTail puts the tail only together with a ticket.
func leaveNoTail(t *pb.TxnRequest) {
	ticket := slices.ContainsFunc(t.Success, func(op *pb.RequestOp) bool {
		key := string(op.GetRequestPut().GetKey())
		return strings.Contains(key, "/.queue/") && !strings.HasSuffix(key, "/.tail")
	})
	if !ticket && !putsUUID(t) {
		t.Success = dropPuts("/.tail")(t.Success)
	}
}

// scanning makes every look read the oldest ticket, too.
func scanning(t *pb.TxnRequest) {
	for _, branch := range []*[]*pb.RequestOp{&t.Success, &t.Failure} {
		ticket := slices.IndexFunc(*branch, func(op *pb.RequestOp) bool {
			return strings.Contains(string(op.GetRequestRange().GetKey()), "/.queue/")
		})
		if ticket < 0 || len(putsOf(*branch)) > 0 {
			continue
		}
		key := (*branch)[ticket].GetRequestRange().Key
		queue := key[:bytes.LastIndexByte(key, '/')+1]
		*branch = append(*branch, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
			Key:      append(slices.Clone(queue), '/'),
			RangeEnd: []byte(clientv3.GetPrefixRangeEnd(string(queue))), Limit: 1}}})
	}
}

func unleased(key string) func([]*pb.RequestOp) []*pb.RequestOp {
	return func(ops []*pb.RequestOp) []*pb.RequestOp {
		for _, op := range ops {
			if put := op.GetRequestPut(); strings.Contains(string(put.GetKey()), key) {
				put.Lease = 0
			}
		}
		return ops
	}
}

// readOnce makes every read of a hold return the result of the first.
func readOnce() func(*pb.TxnRequest, *pb.TxnResponse, error) error {
	var mu sync.Mutex
	first := map[string]*pb.TxnResponse{}
	return func(t *pb.TxnRequest, r *pb.TxnResponse, err error) error {
		if err != nil || len(t.Compare) == 0 || len(t.Success) == 0 || t.Success[0].GetRequestRange() == nil {
			return err // not the holder's
		}
		mu.Lock()
		defer mu.Unlock()
		key := string(t.Compare[0].Key)
		if said := first[key]; said != nil {
			*r = pb.TxnResponse{Header: r.Header, Succeeded: said.Succeeded, Responses: said.Responses}
		} else {
			first[key] = &pb.TxnResponse{Succeeded: r.Succeeded, Responses: r.Responses}
		}
		return nil
	}
}

// slowClock counts the local deadline from the arrival of the answer, which is too late.
func slowClock() *fault {
	var late atomic.Int64
	return &fault{name: "clock from the send", about: "the local deadline counts from the answer", check: "slow answer",
		says: "after the time from which on the lock could be removed",
		took: func(d time.Duration) { late.Store(max(late.Load(), int64(d))) },
		said: event("lost", func(m map[string]any) map[string]any {
			time.Sleep(time.Duration(late.Load()))
			return m
		})}
}

// giveUp turns a missing answer into a refusal.
func giveUp(_ *pb.TxnRequest, _ *pb.TxnResponse, err error) error {
	if err != nil {
		return status.Error(codes.PermissionDenied, "given up")
	}
	return nil
}

// forgetOwn makes the client's own record look like another's.
func forgetOwn(_ *pb.TxnRequest, r *pb.TxnResponse, err error) error {
	if err != nil {
		return err
	}
	for _, one := range r.Responses {
		for _, kv := range one.GetResponseRange().GetKvs() {
			if strings.HasSuffix(string(kv.Key), "/uuid") {
				kv.Value = []byte("00000000-0000-4000-8000-000000000000")
			}
		}
	}
	return nil
}

// TestFaults runs the suite on drivers that break a rule: it must reject each for the right reason.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults {
		if testing.Short() && !f.short {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			label := goClient(f.name).name
			if f.behind {
				label = goClient("").name + "+" + label
			}
			text, err := runSuite(t, f, "^"+subtest(f.check)+"$", []string{label}, "-limit=45s")
			failed := "--- FAIL: TestConformance/" + strings.ReplaceAll(f.check, " ", "_") + "/"
			switch {
			case err == nil:
				t.Errorf("%s: the suite does not notice:\n%s", f.about, text)
			case !strings.Contains(text, failed) || !strings.Contains(text, f.says):
				t.Errorf("%s: it is not refused by %q because of %q:\n%s", f.about, f.check, f.says, text)
			}
		})
	}
}

// runSuite runs checks in a process of their own, on a Go driver with that fault. The labels are clients and pairs.
func runSuite(t *testing.T, f *fault, checks string, labels []string, args ...string) (output string, err error) {
	var subtests []string
	for _, label := range labels {
		subtests = append(subtests, subtest(label))
	}
	args = append(args, "-test.run=^TestConformance$/"+checks+"/^("+strings.Join(subtests, "|")+")$",
		"-broken="+f.name, "-programs="+programs.Dir, "-protocol="+*protocolDir)
	path, err := os.Executable()
	proctest.Must(t, err)
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func subtest(name string) string { return regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_")) }

func (d *goDriver) releaseAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.locks {
		if err := l.Unlock(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
