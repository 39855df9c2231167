package robustness

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// wire sits in front of one member of etcd, understands the requests, and treats single transactions like a network and
// a busy etcd: answers are lost, requests are sent twice, or are applied long after the client gave up.
//
// It is also where mutants live: it takes guards out of transactions of programs that know nothing of it.
type wire struct {
	*etcdtest.Relay
	mutant *mutant
	calm   atomic.Bool // no more faults
	often  bool        // for programs with few transactions

	mu     sync.Mutex
	rand   *rand.Rand
	counts map[string]int
	late   sync.WaitGroup // requests that are still under way although nobody waits for them
}

func newWire(t testing.TB, endpoint string, seed uint64, m *mutant, often bool) *wire {
	w := &wire{mutant: m, often: often, rand: rand.New(rand.NewPCG(seed, 3)), counts: map[string]int{}}
	w.Relay = etcdtest.NewRelay(t, endpoint, w.handle, http.NotFoundHandler())
	return w
}

func (w *wire) handle(ctx context.Context, method string, from grpc.ServerStream) error {
	switch method {
	case pb.KV_Txn_FullMethodName:
		return w.txn(ctx, from)
	case pb.Lease_LeaseRevoke_FullMethodName:
		w.hold(ctx)
	}
	return w.Pass(ctx, method, from)
}

func (w *wire) txn(ctx context.Context, from grpc.ServerStream) error {
	in := &etcdtest.Message{}
	if err := from.RecvMsg(in); err != nil {
		return err
	}
	in, step := w.mutate(in)
	send := func(ctx context.Context) (*etcdtest.Message, error) {
		return w.Call(ctx, pb.KV_Txn_FullMethodName, in)
	}
	fault, delay := w.choose(step)
	switch fault {
	case "late", "overtaken": // who is overtaken goes on at once, and what it asked for is over when this comes
		w.later(ctx, delay, send)
	case "held back": // the client waits for it, and others are first
		sleep(ctx, delay/6)
	case "answer lost", "broken off", "sent twice":
		send(ctx)
	}
	switch fault {
	case "late", "answer lost":
		<-ctx.Done()
		return etcdtest.ErrBroken
	case "overtaken", "broken off":
		return etcdtest.ErrBroken
	}
	out, err := send(ctx)
	if err != nil {
		return err
	}
	return from.SendMsg(out)
}

func (w *wire) later(ctx context.Context, delay time.Duration, send func(context.Context) (*etcdtest.Message, error)) {
	md, _ := grpcmetadata.FromOutgoingContext(ctx)
	w.late.Go(func() {
		time.Sleep(delay)
		late, cancel := context.WithTimeout(grpcmetadata.NewOutgoingContext(context.Background(), md), 2*time.Second)
		defer cancel()
		send(late)
	})
}

// choose decides what happens to a transaction of this step: mostly nothing.
func (w *wire) choose(step string) (fault string, delay time.Duration) {
	if w.calm.Load() {
		return "", 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.rand.IntN(1000)
	if w.often {
		n /= 4
	}
	if w.mutant != nil {
		n /= 3
	}
	for _, f := range []struct {
		name string
		per  int
	}{{"late", 30}, {"answer lost", 15}, {"broken off", 15}, {"sent twice", 20}} {
		if n -= f.per; n < 0 {
			fault = f.name
			w.counts["transaction "+fault]++
			break
		}
	}
	if w.mutant != nil && slices.Contains(w.mutant.late, step) && w.rand.IntN(3) == 0 {
		fault = []string{"late", "overtaken", "held back"}[w.rand.IntN(3)]
	}
	return fault, 50*time.Millisecond + time.Duration(w.rand.Int64N(int64(3*time.Second)))
}

// hold occasionally delays a request. A lease that is revoked late lets requests with it succeed.
func (w *wire) hold(ctx context.Context) {
	if fault, delay := w.choose(""); fault != "" || w.mutant != nil && !w.calm.Load() {
		sleep(ctx, delay)
	}
}

// mutate removes the mutant's guards from a transaction, and returns which step it is.
func (w *wire) mutate(in *etcdtest.Message) (out *etcdtest.Message, step string) {
	if w.mutant == nil || w.mutant.drop == nil {
		return in, ""
	}
	txn := &pb.TxnRequest{}
	if err := proto.Unmarshal(in.Bytes, txn); err != nil {
		panic(err)
	}
	step = shapeOf(txn).step()
	if n := w.mutant.strip(txn); n > 0 {
		w.mu.Lock()
		w.counts["guards left out"] += n
		w.mu.Unlock()
	}
	bytes, err := proto.Marshal(txn)
	if err != nil {
		panic(err)
	}
	return &etcdtest.Message{Bytes: bytes}, step
}

func (w *wire) done() map[string]int {
	w.calm.Store(true)
	w.late.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// mutant is the protocol with one guard left out. The wire takes it out of the transactions on their way, so that the
// programs are those that are shipped.
type mutant struct {
	name   string
	about  string   // what is left out
	drop   guard    // nil: see forged
	forged bool     // the client shows the resource another number than its token
	rules  []string // one of them has to be found broken
	length time.Duration
	favour []string // faults that it takes
	late   []string // steps that come late more often than not, see wire
	plain  bool     // clients only take plain locks, and do not wait for long
	jobs   bool     // half of what clients do is a job
	calm   bool     // the unlockers have to be at work

	witness bool // there has to be one
}

type guard func(t *shape, c *pb.Compare) bool

// mutants has one for each guard of docs/protocol.md whose need shows in a client of this repository.
// docs/correctness.md lists which are missing, and why.
var mutants = []*mutant{
	{name: "acquire-held", about: "acquire without C(uuid) = 0", drop: in(stepAcquire, created("uuid")),
		rules: []string{ruleOneRecord}},
	{name: "acquire-queue", about: "acquire without C(tail) = 0", drop: in(stepAcquire, created(".tail")),
		rules: []string{ruleQueue}},
	{name: "acquire-cancelled", about: "acquire without C(.cancelled/uuid) = 0",
		drop: in(stepAcquire, area(".cancelled/")), rules: []string{ruleCancelled}},
	{name: "join-cancelled", about: "join without C(.cancelled/uuid) = 0", drop: in(stepJoin, area(".cancelled/")),
		rules: []string{ruleCancelled}, late: []string{stepAcquire, stepJoin}, plain: true},
	{name: "turn-place", about: "take the turn without C(ticket) as put", drop: in(stepTurn, ownTicket),
		rules: []string{ruleTicket, ruleQueue}, favour: []string{"lock and its queue deleted by hand"}},
	{name: "alive-holder", about: "alive without V(uuid) = mine and C(uuid) = T", drop: in(stepAlive, identity),
		rules: []string{ruleKeys, ruleDeadline, ruleLinear, ruleKeeper}, late: []string{stepAlive}, plain: true},
	{name: "alive-forward", about: "alive without V(auto_unlock_at) < new",
		drop: in(stepAlive, compares(pb.Compare_VALUE, "auto_unlock_at")), rules: []string{ruleDeadline}},
	{name: "release-holder", about: "release without V(uuid) = mine and C(uuid) = T",
		drop: in(stepRelease, identity), rules: []string{ruleRemoval, ruleLinear}},
	{name: "cancel-holder", about: "cancel without V(uuid) = mine", drop: in(stepCancel, identity),
		rules: []string{ruleRemoval, ruleLinear}},
	{name: "sweep-deadline", about: "auto-unlock without M(auto_unlock_at) as seen",
		drop: in(stepSweep, compares(pb.Compare_MOD, "auto_unlock_at")), rules: []string{ruleEarly, ruleKeeper},
		length: 20 * time.Second, calm: true},
	{name: "sweep-blind", about: "auto-unlock without C(uuid) = T and M(auto_unlock_at) as seen",
		drop: in(stepSweep, anything), rules: []string{ruleEarly, ruleRemoval, ruleHistory, ruleLinear},
		length: 20 * time.Second, calm: true},
	{name: "part-range", about: "take a part without the compare of all other parts", drop: overRange,
		rules: []string{rulePermits, ruleBelief}},
	{name: "part-lock", about: "take a part without C(uuid) = 0 of the lock itself",
		drop: in(stepAcquire, lockItself), rules: []string{rulePermits, ruleBelief, ruleLinear}},
	{name: "condition", about: "acquire without the compares of the caller's", drop: in(stepAcquire, callers),
		rules: []string{ruleCount}, late: []string{stepAcquire}},
	{name: "period", about: "take a period without M(period) as seen", drop: in(stepAcquire, area(".periods/")),
		rules: []string{rulePeriod}, late: []string{stepAcquire}, jobs: true},
	{name: "task", about: "take a task without M(task) as seen", drop: in(stepAcquire, area(".tasks/")),
		rules: []string{ruleTask}, late: []string{stepAcquire}},
	{name: "guard", about: "a write of the holder without C(uuid) = T", drop: in(stepGuarded, identity),
		rules: []string{ruleGuard}, late: []string{stepGuarded}, plain: true},
	{name: "state", about: "state a death without any guard", drop: in(stepState, anything), rules: []string{ruleDead},
		late: []string{stepState}, favour: []string{"client killed"}, length: 20 * time.Second, witness: true},
	{name: "abandoned", about: "remove an abandoned lock without M(.deaths/uuid) as seen",
		drop: in(stepSweep, area(".deaths/")), rules: []string{ruleDead}, late: []string{stepSweep},
		favour: []string{"client killed", "death stated by a stranger"}, length: 20 * time.Second, witness: true},
	{name: "token", about: "a resource that is shown a number of the process instead of T", forged: true,
		rules: []string{ruleFence}},
}

// The steps of the protocol that the wire can tell apart.
const (
	stepAcquire = "acquire"
	stepTurn    = "turn"
	stepJoin    = "join"
	stepRelease = "release"
	stepCancel  = "cancel"
	stepSweep   = "sweep"
	stepState   = "state"
	stepGuarded = "guarded"
)

type shape struct {
	*pb.TxnRequest
	puts, deletes []string
}

func shapeOf(t *pb.TxnRequest) *shape {
	s := &shape{TxnRequest: t}
	for _, op := range t.Success {
		if p := op.GetRequestPut(); p != nil {
			s.puts = append(s.puts, string(p.Key))
		}
		if d := op.GetRequestDeleteRange(); d != nil {
			s.deletes = append(s.deletes, string(d.Key))
		}
	}
	return s
}

func (s *shape) step() string {
	has := slices.ContainsFunc[[]string]
	in := func(area string) func(string) bool {
		return func(key string) bool { return strings.HasPrefix(key, prefix+area) }
	}
	field := func(name string) func(string) bool {
		return func(key string) bool { return strings.HasSuffix(key, "/"+name) && !in(".")(key) }
	}
	switch {
	case has(s.puts, field(lockrecord.FieldUUID)) && has(s.puts, in(".queue/")):
		return stepTurn
	case has(s.puts, field(lockrecord.FieldUUID)):
		return stepAcquire
	case has(s.puts, field(lockrecord.FieldAutoUnlockAt)), has(s.puts, field(lockrecord.FieldAlive)):
		return stepAlive
	case has(s.puts, in(".queue/")):
		return stepJoin
	case has(s.puts, in(".cancelled/")):
		return stepCancel
	case has(s.puts, in(".deaths/")):
		return stepState
	case has(s.puts, in(".history/")):
		return stepSweep
	case has(s.puts, func(key string) bool { return strings.HasPrefix(key, resourcePrefix) }):
		return stepGuarded
	case has(s.deletes, func(key string) bool { return strings.HasPrefix(key, prefix) && !in(".")(key) }):
		return stepRelease
	}
	return ""
}

func (m *mutant) strip(t *pb.TxnRequest) (dropped int) {
	s := shapeOf(t)
	before := len(t.Compare)
	t.Compare = slices.DeleteFunc(t.Compare, func(c *pb.Compare) bool { return m.drop(s, c) })
	dropped = before - len(t.Compare)
	for _, op := range slices.Concat(t.Success, t.Failure) {
		if inner := op.GetRequestTxn(); inner != nil {
			dropped += m.strip(inner)
		}
	}
	return dropped
}

func in(step string, c func(*shape, *pb.Compare) bool) guard {
	return func(t *shape, cmp *pb.Compare) bool { return t.step() == step && c(t, cmp) }
}

func anything(*shape, *pb.Compare) bool { return true }

// created matches the compare C(key) = 0 of a key with this suffix.
func created(name string) func(*shape, *pb.Compare) bool { return compares(pb.Compare_CREATE, name) }

func compares(target pb.Compare_CompareTarget, name string) func(*shape, *pb.Compare) bool {
	return func(_ *shape, c *pb.Compare) bool { return c.Target == target && last(c) == name }
}

func area(name string) func(*shape, *pb.Compare) bool {
	return func(_ *shape, c *pb.Compare) bool { return strings.HasPrefix(string(c.Key), prefix+name) }
}

// identity matches the compares of whose hold it is.
func identity(_ *shape, c *pb.Compare) bool { return last(c) == lockrecord.FieldUUID }

// lockItself matches the compare that the lock itself is free, when a share is taken.
func lockItself(t *shape, c *pb.Compare) bool {
	return created("uuid")(t, c) && !slices.Contains(t.puts, string(c.Key))
}

func callers(_ *shape, c *pb.Compare) bool { return !strings.HasPrefix(string(c.Key), prefix) }

func overRange(_ *shape, c *pb.Compare) bool { return len(c.RangeEnd) > 0 }

// ownTicket matches the compare of the ticket that the transaction puts.
func ownTicket(t *shape, c *pb.Compare) bool {
	return slices.Contains(t.puts, string(c.Key)) && area(".queue/")(t, c)
}

func last(c *pb.Compare) string {
	key := string(c.Key)
	return key[strings.LastIndexByte(key, '/')+1:]
}
