package docs

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The bodies in transactions.json and kinds.json are the transactions of the Go client, where it has the same. What it
// does in another way is put together from its parts.
func TestBodiesMatchTheGoClientsTransactions(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range cases(t) {
		t.Run(c.Step+": "+c.About, func(t *testing.T) {
			seen[c.Step] = true
			sameBody(t, c.Body, sent(t, fromGo(t, c)))
		})
	}
	for _, step := range steps() {
		if !seen[step] {
			t.Errorf("no case has the step %s", step)
		}
	}
}

func cases(t *testing.T) []transaction {
	t.Helper()
	return slices.Concat(readFile(t, "transactions.json", 25, 100).Transactions,
		readFile(t, "kinds.json", 19, 32).Transactions)
}

// sameBody compares a body of a file, which has to be in the canonical form, with the transaction of the Go client.
func sameBody(t *testing.T, body json.RawMessage, want *pb.TxnRequest) {
	t.Helper()
	got := new(pb.TxnRequest)
	proctest.Must(t, protojson.Unmarshal(body, got)) // refuses unknown members
	if diff := gocmp.Diff(object(t, canonical(t, got)), object(t, string(body))); diff != "" {
		t.Errorf("the body differs from the canonical form (-canonical +file):\n%s", diff)
	}
	if diff := gocmp.Diff(normal(want), normal(got), protocmp.Transform()); diff != "" {
		t.Errorf("the body differs (-Go +file):\n%s\nGo's is:\n%s", diff, canonical(t, want))
	}
}

func steps() []string {
	return []string{"acquire", "try", "alive", "release", "release_in_doubt", "cancel", "withdraw", "join", "look",
		"scan", "turn", "leave", "leave_as_tail", "restore_tail"}
}

// To etcd, a transaction within a transaction is a write, whatever it does. So a step that only reads has none: each
// look of each waiter would be a commit.
func TestReadsAreNoCommits(t *testing.T) {
	t.Parallel()
	reads := 0
	for _, c := range cases(t) {
		has := func(operation string) bool { return strings.Contains(string(c.Body), operation) }
		if has(`"request_put"`) || has(`"request_delete_range"`) {
			continue
		}
		reads++
		if has(`"request_txn"`) {
			t.Errorf("%s: %s: it only reads, and contains a transaction", c.Step, c.About)
		}
	}
	if reads == 0 {
		t.Error("there is no step that only reads")
	}
}

// canonical is the one form that bodies have: names with underscores, what has the default value left out except in
// compares, numbers of 64 bits as text.
func canonical(t *testing.T, txn *pb.TxnRequest) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(txn)
	proctest.Must(t, err)
	body := object(t, string(text))
	sayResults(body)
	return toJSON(t, body)
}

// sayResults writes the default result of compares, in nested transactions, too.
func sayResults(txn map[string]any) {
	compares, _ := txn["compare"].([]any)
	for _, c := range compares {
		if compare := c.(map[string]any); compare["result"] == nil {
			compare["result"] = "EQUAL"
		}
	}
	for _, branch := range []string{"success", "failure"} {
		operations, _ := txn[branch].([]any)
		for _, o := range operations {
			if nested, ok := o.(map[string]any)["request_txn"].(map[string]any); ok {
				sayResults(nested)
			}
		}
	}
}

// fromGo builds a case's transaction with the functions that the Go client uses.
func fromGo(t *testing.T, c transaction) locktxn.Txn {
	t.Helper()
	l := protocol.DefaultLayout()
	i := c.Input
	hold := locktxn.Hold{Lock: i.Lock, UUID: i.UUID, Token: number(t, i.Token)}
	position := locktxn.Position{Lock: i.Lock, UUID: i.UUID, Revision: number(t, i.Position)}
	lease := clientv3.LeaseID(number(t, i.Lease))
	record := i.Fields.record()
	claim := i.claim(t)
	// What the page reads in the else branch of a release, and the Go client in a request of its own.
	whyLost := []clientv3.Op{
		clientv3.OpGet(l.Record(i.Lock), clientv3.WithPrefix()), clientv3.OpGet(l.History(i.UUID)),
	}
	leave := locktxn.LeaveWithoutPut(l, i.Lock, i.UUID).Then
	switch c.Step {
	case "acquire":
		return locktxn.Acquire(l, claim, i.UUID, record, false)
	case "try":
		txn := locktxn.Enqueue(l, claim, i.UUID, record, metadata.Ticket{}, 0)
		txn.Else[locktxn.HolderReads] = clientv3.OpGet(l.Tail(i.Lock)) // it joins in the same transaction
		return txn
	case "alive":
		txn := locktxn.Alive(l, hold, i.Fields["alert_at"], i.Fields["auto_unlock_at"], i.Fields["alive"])
		if i.Seen != "" {
			txn = locktxn.Heartbeat(l, hold, i.Fields["alert_at"], i.Fields["auto_unlock_at"], i.Fields["alive"],
				number(t, i.Seen))
		}
		compares, puts, _ := txn.Then[0].Txn() // where the deadline is as late, it reads and moves the alert
		txn.Then[0] = clientv3.OpTxn(compares, puts, nil)
		txn.Else = whyLost
		return txn
	case "release":
		txn := locktxn.Release(l, hold)
		txn.Else = whyLost
		if i.Queued {
			txn.Then = locktxn.HandOver(l, hold).Then
			txn.Else = append(txn.Else, leave...)
		}
		return txn
	case "release_in_doubt":
		txn := locktxn.ReleaseIndeterminate(l, i.Lock, hold, lease)
		txn.Else = append(txn.Else, whyLost...)
		return txn
	case "cancel", "withdraw":
		txn := locktxn.Cancel(l, claim, i.UUID, lease)
		if c.Step == "withdraw" {
			txn = locktxn.Withdraw(l, claim, i.UUID)
		}
		if !i.Queued { // it also leaves a queue
			waits := func(op clientv3.Op) bool {
				return op.IsTxn() || strings.HasPrefix(string(op.KeyBytes()), l.Queue(i.Lock))
			}
			txn.Then = slices.DeleteFunc(txn.Then, waits)
			txn.Else = slices.DeleteFunc(txn.Else, waits)
		}
		return txn
	case "look", "scan":
		ours := locktxn.ReadPosition(l, claim, position, i.Before, c.Step == "look")
		txn := locktxn.Txn{Then: ours.Then}
		if !claim.MultiHolder {
			txn.Then = append(place(l, i.Lock, ours), ours.Then[4:]...)
		}
		if i.Before != "" { // Go's client looks for the older ones at once if that is gone
			txn.Then = append(txn.Then, ours.Else[2])
		}
		if c.Step == "scan" { // it reads that when there is no tail
			txn.Then = append(txn.Then, locktxn.ReadTail(l, i.Lock).Then[1])
		}
		return txn
	case "turn":
		txn := locktxn.AcquireInTurn(l, claim, position, "", record, metadata.Ticket{}, 0)
		if !claim.MultiHolder { // it keeps its ticket, with a mark
			txn.Then = append(txn.Then[:len(record)], leave...)
		}
		txn.Else = txn.Else[:locktxn.HolderReads+1] // it reads the tail
		return txn
	case "leave":
		return locktxn.Leave(l, i.Lock, i.UUID)
	case "leave_as_tail":
		return locktxn.LeaveAsTail(l, i.Lock, i.UUID, i.Older.last(t))
	case "restore_tail":
		return locktxn.RestoreTail(l, i.Lock, i.Older.last(t))
	case "join":
		return joins(t, l, i, lease)
	}
	return jobFromGo(t, l, c.Step, i, lease)
}

// claim is what a case wants of a lock: all of it, or a share.
func (i input) claim(t *testing.T) locktxn.Claim {
	t.Helper()
	c := locktxn.PlainClaim(i.Lock)
	c.MultiHolder = i.Kind != ""
	c.CountsShares = i.Kind != metadata.KindShared
	c.CountedAt = number(t, i.Counted)
	if i.Share > 0 {
		c.Record = metadata.ShareName(i.Lock, i.Share)
	}
	return c
}

// jobFromGo builds the transactions of several locks and of jobs.
func jobFromGo(t *testing.T, l protocol.Layout, step string, i input, lease clientv3.LeaseID) locktxn.Txn {
	t.Helper()
	one := []locktxn.BatchLock{{Lock: i.Lock, UUID: i.UUID, Fields: i.Fields.record()}}
	switch step {
	case "acquire_all":
		var all []locktxn.BatchLock
		for _, of := range i.Locks {
			all = append(all, locktxn.BatchLock{Lock: of.Lock, UUID: of.UUID, Fields: of.Fields.record()})
		}
		return locktxn.AcquireBatch(l, all, nil, nil)
	case "read_period":
		return locktxn.ReadPeriod(l, i.Lock)
	case "acquire_once":
		seen := clientv3.Compare(clientv3.ModRevision(l.Period(i.Lock)), "=", number(t, i.Seen))
		txn := locktxn.AcquireBatch(l, one, []clientv3.Cmp{seen},
			[]clientv3.Op{clientv3.OpPut(l.Period(i.Lock), i.Taken)})
		txn.Else[4] = clientv3.OpGet(l.Period(i.Lock)) // it reads that in a transaction
		return txn
	case "settle":
		txn := locktxn.SettleBatch(l, one, lease)
		txn.Then = append(txn.Then[:1:1], txn.Then[4:]...) // it reads the shares, the delay and the tail, too
		return txn
	}
	t.Fatalf("there is no step %q", step)
	return locktxn.Txn{}
}

// place is what each look of the page reads; that of the Go client reads the whole record instead of its uuid.
func place(l protocol.Layout, lock string, ours locktxn.Txn) []clientv3.Op {
	delay := ours.Then[1]
	own := ours.Then[2]
	tail := ours.Then[3]
	return []clientv3.Op{own, clientv3.OpGet(l.Field(lock, lockrecord.FieldUUID)), tail, delay}
}

// joins is what the Go client does in the else branch of its try.
func joins(t *testing.T, l protocol.Layout, i input, lease clientv3.LeaseID) locktxn.Txn {
	t.Helper()
	ticket, err := protocol.Unmarshal[metadata.Ticket]([]byte(i.Ticket))
	if err != nil {
		t.Fatalf("the ticket cannot be read: %v", err)
	}
	try := locktxn.Enqueue(l, locktxn.PlainClaim(i.Lock), i.UUID, nil, ticket, lease)
	_, _, unlessMine := try.Else[len(try.Else)-1].Txn()
	compares, puts, reads := unlessMine[0].Txn()
	// The order of the members in the ticket is the client's business.
	puts = []clientv3.Op{clientv3.OpPut(l.Ticket(i.Lock, i.UUID), i.Ticket, clientv3.WithLease(lease)), puts[1]}
	return locktxn.Txn{If: compares, Then: puts, Else: reads}
}

func (w *waiter) last(t *testing.T) locktxn.NewestTicket {
	t.Helper()
	if w == nil {
		return locktxn.NewestTicket{}
	}
	return locktxn.NewestTicket{
		UUID: w.Ticket, Revision: number(t, w.CreateRevision), Lease: clientv3.LeaseID(number(t, w.Lease)),
	}
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	proctest.Must(t, err)
	return n
}

// sent is what etcd's client sends for a transaction.
func sent(t *testing.T, txn locktxn.Txn) *pb.TxnRequest {
	t.Helper()
	var c catcher
	_, err := txn.Commit(t.Context(), clientv3.NewKVFromKVClient(&c, nil))
	proctest.Must(t, err)
	return c.request
}

// catcher keeps the request instead of sending it.
type catcher struct {
	pb.KVClient
	request *pb.TxnRequest
}

func (c *catcher) Txn(_ context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	c.request = proto.Clone(r).(*pb.TxnRequest)
	return new(pb.TxnResponse), nil
}

// normal is a transaction in which what makes no difference to the page is the same: the order of compares, of writes
// and of reads, and how much of a key is read.
func normal(txn *pb.TxnRequest) *pb.TxnRequest {
	txn = proto.Clone(txn).(*pb.TxnRequest)
	slices.SortFunc(txn.Compare, func(a, b *pb.Compare) int {
		return cmp.Or(cmp.Compare(string(a.Key), string(b.Key)), cmp.Compare(a.Target, b.Target))
	})
	for _, branch := range [][]*pb.RequestOp{txn.Success, txn.Failure} {
		for _, op := range branch {
			switch {
			case op.GetRequestRange() != nil:
				op.GetRequestRange().KeysOnly = false
			case op.GetRequestTxn() != nil:
				op.Request = &pb.RequestOp_RequestTxn{RequestTxn: normal(op.GetRequestTxn())}
			}
		}
		slices.SortStableFunc(branch, func(a, b *pb.RequestOp) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	}
	return txn
}

func keyOf(op *pb.RequestOp) string {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return "put " + string(r.RequestPut.Key)
	case *pb.RequestOp_RequestDeleteRange:
		return "delete " + string(r.RequestDeleteRange.Key)
	case *pb.RequestOp_RequestRange:
		return "range " + string(r.RequestRange.Key)
	}
	return "txn"
}
