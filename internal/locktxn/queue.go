package locktxn

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Position is a position in the queue of a lock: a ticket, which no other attempt ever uses again.
type Position struct {
	Lock     string
	UUID     string // of the attempt; the last part of the ticket's key
	Revision int64  // create revision of the ticket
}

// Enqueue takes the lock as [Acquire] does or else, in the same transaction, joins the queue: it puts the ticket and
// becomes the tail.
//
// Else it reads the record and the delay, then answers in a nested transaction, see [Joined].
func Enqueue(l protocol.Layout, lock, uuid string, fields []metadata.Field, ticket metadata.Ticket,
	lease clientv3.LeaseID) Txn {
	t := take(l, lock, uuid, fields)
	t.If = append(t.If, absent(l.Tail(lock)), absent(l.Ticket(lock, uuid))) // an earlier send may have joined
	// An earlier send may also have taken the lock: a holder must not queue behind itself.
	mine := clientv3.Compare(clientv3.Value(l.Field(lock, metadata.FieldUUID)), "=", uuid)
	t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{mine}, nil,
		[]clientv3.Op{join(l, lock, uuid, ticket, lease)}))
	return t
}

// Join joins the queue no matter who holds the lock. It reads the record and the delay, and answers as [Enqueue] does
// when that did not take the lock. Without a record to write, it is a fraction of the size.
func Join(l protocol.Layout, lock, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	return Txn{Then: append(holder(l, lock), join(l, lock, uuid, ticket, lease))}
}

// join puts the ticket and becomes the tail. If the ticket is there already, it reads that.
func join(l protocol.Layout, lock, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) clientv3.Op {
	key := l.Ticket(lock, uuid)
	return clientv3.OpTxn(
		[]clientv3.Cmp{absent(key), absent(l.Cancelled(uuid))},
		[]clientv3.Op{
			clientv3.OpPut(key, protocol.Marshal(ticket), clientv3.WithLease(lease)),
			clientv3.OpPut(l.Tail(lock), uuid, clientv3.WithLease(lease), clientv3.WithPrevKV()),
		},
		[]clientv3.Op{clientv3.OpGet(key)},
	)
}

// Joined reads the answer of [Enqueue], [EnqueueShare], [Join] or [JoinShare] when it did not take the lock: the create
// revision of the ticket, 0 if there is none, and the ticket before it, empty if that is not known. Only the send that
// put the ticket knows it, not a repetition.
func Joined(r *clientv3.TxnResponse) (revision int64, before string) {
	if len(r.Responses) == 0 {
		return 0, ""
	}
	join := r.Responses[len(r.Responses)-1].GetResponseTxn()
	for join != nil && !join.Succeeded && len(join.Responses) > 0 && join.Responses[0].GetResponseTxn() != nil {
		join = join.Responses[0].GetResponseTxn() // the transaction in the else branch
	}
	switch {
	case join == nil || len(join.Responses) == 0:
		return 0, ""
	case !join.Succeeded:
		for _, kv := range join.Responses[0].GetResponseRange().GetKvs() {
			revision = kv.CreateRevision
		}
		return revision, ""
	case len(join.Responses) > 1:
		if tail := join.Responses[1].GetResponsePut().GetPrevKv(); tail != nil && metadata.IsUUID(string(tail.Value)) {
			before = string(tail.Value)
		}
	}
	return r.Header.Revision, before
}

// TakeTurn takes the lock for the first in the queue. before is the ticket that was ahead and is gone; empty for none.
// The ticket stays, with the mark of a holder: its deletion hands the lock over.
//
// Else it reads the record, the delay, the ticket and the tail: without the ticket the position is lost, without the
// tail newcomers overtake the queue, see [RestoreTail].
func TakeTurn(l protocol.Layout, p Position, before string, fields []metadata.Field, ticket metadata.Ticket,
	lease clientv3.LeaseID) Txn {
	t := take(l, p.Lock, p.UUID, fields)
	key := l.Ticket(p.Lock, p.UUID)
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(key), "=", p.Revision))
	if before != "" {
		t.If = append(t.If, absent(l.Ticket(p.Lock, before)))
	}
	ticket.Holding = true
	ticket.TimeoutAt = metadata.Time{}
	t.Then = append(t.Then, clientv3.OpPut(key, protocol.Marshal(ticket), clientv3.WithLease(lease)))
	t.Else = append(t.Else, clientv3.OpGet(key), readTailKey(l, p.Lock))
	return t
}

// ReadAhead reads what a waiter must know. While the ticket before its own is there: both tickets, its own first, and
// the tail. Otherwise its own ticket, the lock's uuid key, the tail and the newest ticket older than its own: none
// means that it is the first.
//
// The last of these reads the whole queue in etcd, so it is for waiters that do not know who is ahead.
func ReadAhead(l protocol.Layout, p Position, before string) Txn {
	t := ReadFirst(l, p)
	own := t.Then[0]
	tail := t.Then[2]
	t.Then = append(t.Then, older(l, p, clientv3.WithLimit(1)))
	if before != "" {
		ticket := l.Ticket(p.Lock, before)
		t.If = []clientv3.Cmp{absent(ticket)}
		t.Else = []clientv3.Op{own, clientv3.OpGet(ticket), tail}
	}
	return t
}

// ReadFirst is [ReadAhead] for the first in the queue: it reads its own ticket, the lock's uuid key and the tail.
func ReadFirst(l protocol.Layout, p Position) Txn {
	own := clientv3.OpGet(l.Ticket(p.Lock, p.UUID))
	uuid := clientv3.OpGet(l.Field(p.Lock, metadata.FieldUUID))
	return Txn{Then: []clientv3.Op{own, uuid, readTailKey(l, p.Lock)}}
}

// readTailKey reads whether there is a tail.
func readTailKey(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Tail(lock), clientv3.WithKeysOnly())
}

// older reads the tickets older than p, newest first.
func older(l protocol.Layout, p Position, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithMaxCreateRev(p.Revision-1), clientv3.WithSort(clientv3.SortByCreateRevision,
		clientv3.SortDescend))
	return tickets(l, p.Lock, opts...)
}

// tickets reads the tickets of a lock without its tail, which sorts before all of them, as tickets begin with a digit
// or a letter.
func tickets(l protocol.Layout, lock string, opts ...clientv3.OpOption) clientv3.Op {
	queue := l.Queue(lock)
	return clientv3.OpGet(queue+"/", append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd(queue)))...)
}

// Leave takes a waiter out of the queue, unless it is the tail, and reads the rest. If it is the tail, it reads the
// rest and then the two newest tickets: a waiter leaving as the tail puts the tail back to the ticket before it, see
// [Newest] and [LeaveAsTail].
func Leave(l protocol.Layout, lock, uuid string, rest ...clientv3.Op) Txn {
	return Txn{
		If:   []clientv3.Cmp{isTail(l, lock, uuid)},
		Then: slices.Concat(rest, []clientv3.Op{newest(l, lock, 2)}),
		Else: slices.Concat(rest, []clientv3.Op{clientv3.OpDelete(l.Ticket(lock, uuid))}),
	}
}

// LeaveTogether reads the rest and takes several waiters out of the queue, except for one that is its tail, see
// [StillTail].
func LeaveTogether(l protocol.Layout, lock string, uuids []string, rest ...clientv3.Op) Txn {
	t := Txn{Then: slices.Clone(rest)}
	for _, uuid := range uuids {
		t.Then = append(t.Then, clientv3.OpTxn([]clientv3.Cmp{isTail(l, lock, uuid)}, nil,
			[]clientv3.Op{clientv3.OpDelete(l.Ticket(lock, uuid))}))
	}
	return t
}

// StillTail reports whether [LeaveTogether] left the waiter of the operation with this number in the queue: as its
// tail, it has to leave by [Leave].
func StillTail(r *clientv3.TxnResponse, op int) bool {
	return op < len(r.Responses) && r.Responses[op].GetResponseTxn().GetSucceeded()
}

// Last is the newest ticket of a queue, which its tail names. The zero Last is none.
type Last struct {
	UUID     string
	Revision int64 // create revision of the ticket
	Lease    clientv3.LeaseID
}

// Newest is the newest of the tickets in an answer, which has the newest first, without the ticket of this uuid.
func Newest(l protocol.Layout, tickets []*mvccpb.KeyValue, but string) Last {
	for _, kv := range tickets {
		if id := l.Parse(string(kv.Key)).ID; id != but {
			return Last{UUID: id, Revision: kv.CreateRevision, Lease: clientv3.LeaseID(kv.Lease)}
		}
	}
	return Last{}
}

// LeaveAsTail takes the newest waiter out of the queue and puts the tail back to the ticket before it, with the lease
// of that ticket. If there is none, the queue is empty, and the tail goes.
//
// If it fails, one of the two has changed. If it is refused because the lease is gone, so is the ticket before it, or
// about to be.
func LeaveAsTail(l protocol.Layout, lock, uuid string, before Last) Txn {
	t := Txn{If: []clientv3.Cmp{isTail(l, lock, uuid)}, Then: []clientv3.Op{clientv3.OpDelete(l.Ticket(lock, uuid))}}
	if before.Revision == 0 {
		t.Then = append(t.Then, clientv3.OpDelete(l.Tail(lock)))
		return t
	}
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(l.Ticket(lock, before.UUID)), "=", before.Revision))
	t.Then = append(t.Then, clientv3.OpPut(l.Tail(lock), before.UUID, clientv3.WithLease(before.Lease)))
	return t
}

// LeaveBare takes a waiter out of the queue, and deletes the tail if that is its own: the way out when etcd is out of
// space. Newcomers overtake the queue until another waiter restores the tail.
func LeaveBare(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: leave(l, lock, uuid)}
}

// ReadTail reads the tail and the newest ticket.
func ReadTail(l protocol.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{readTailKey(l, lock), newest(l, lock, 1)}}
}

// RestoreTail puts a tail if there is none although somebody waits: the newest waiter died, and its lease took the tail
// along. last was the newest ticket when it was read: a waiter that joined since has put a tail.
func RestoreTail(l protocol.Layout, lock string, last Last) Txn {
	return Txn{
		If: []clientv3.Cmp{
			absent(l.Tail(lock)),
			clientv3.Compare(clientv3.CreateRevision(l.Ticket(lock, last.UUID)), "=", last.Revision),
		},
		Then: []clientv3.Op{clientv3.OpPut(l.Tail(lock), last.UUID, clientv3.WithLease(last.Lease))},
	}
}

// Known is what a waiter knows of the holders of a lock.
type Known struct {
	Lock     string
	Token    int64 // of the record of the lock; 0 where there was none
	Delay    int64 // mod revision of the delay of the lock; 0 where there was none
	Shares   bool  // several can hold it
	Revision int64 // at which they were read
}

// ReadChanges reads whether a waiter still knows all holders. While they are the same, or fewer of those with a
// share, it counts the keys of the shares and the delays, if several can hold the lock; else it reads the holders and
// the delays. In both cases it then counts each of these tickets: 1 or 0.
func ReadChanges(l protocol.Layout, k Known, tickets []string) Txn {
	t := Txn{
		If: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(l.Field(k.Lock, metadata.FieldUUID)), "=",
			k.Token), clientv3.Compare(clientv3.ModRevision(l.Delay(k.Lock)), "=", k.Delay)},
		Else: holder(l, k.Lock),
	}
	if k.Shares {
		from, end := l.Shares(k.Lock)
		first, last := l.DelaysAbout(k.Lock)
		t.If = append(t.If, noneSince(k.Revision)(from, end))
		t.Then = append(t.Then, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithCountOnly()),
			clientv3.OpGet(first, clientv3.WithRange(last), clientv3.WithCountOnly()))
		t.Else = holders(l, k.Lock)
	}
	for _, uuid := range tickets {
		count := clientv3.OpGet(l.Ticket(k.Lock, uuid), clientv3.WithCountOnly())
		t.Then, t.Else = append(t.Then, count), append(t.Else, count)
	}
	return t
}

// newest reads the n newest tickets, the newest first. It reads their values, too, because etcd does not return leases
// without them.
func newest(l protocol.Layout, lock string, n int64) clientv3.Op {
	return tickets(l, lock, clientv3.WithLimit(n), clientv3.WithSort(clientv3.SortByCreateRevision,
		clientv3.SortDescend))
}

func isTail(l protocol.Layout, lock, uuid string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(l.Tail(lock)), "=", uuid)
}

// MaxStanding is how many tickets a waiter that gives up reads. To read those ahead of it, etcd would read the whole
// queue for each, which grows with the square of their number when many give up at once.
const MaxStanding = 100

// ReadStanding reads the record, the delay, and the keys of up to [MaxStanding] tickets with the number of all.
func ReadStanding(l protocol.Layout, lock string) Txn {
	return Txn{Then: append(holder(l, lock), some(l, lock))}
}

// some reads the first tickets by their keys, which say nothing about their ages.
func some(l protocol.Layout, lock string) clientv3.Op {
	return tickets(l, lock, clientv3.WithKeysOnly(), clientv3.WithLimit(MaxStanding))
}

// holder reads the record of a lock and its delay.
func holder(l protocol.Layout, lock string) []clientv3.Op {
	return []clientv3.Op{read(l, lock), clientv3.OpGet(l.Delay(lock))}
}

// leave deletes the ticket, and the tail if that is the attempt's own: if the attempt is the first, nobody else waits
// then.
func leave(l protocol.Layout, lock, uuid string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(l.Ticket(lock, uuid)),
		clientv3.OpTxn([]clientv3.Cmp{isTail(l, lock, uuid)}, []clientv3.Op{clientv3.OpDelete(l.Tail(lock))}, nil),
	}
}

// HandOver is [Release] of a hold that was got by waiting: it wakes the next waiter.
func HandOver(l protocol.Layout, h Hold) Txn {
	t := Release(l, h)
	t.Then = append(t.Then, leave(l, h.Lock, h.UUID)...)
	return t
}

// CancelQueued is [Cancel] of an attempt that may be in the queue. It has tried to leave before: a tail of its own is
// one that came late.
func CancelQueued(l protocol.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	t := Cancel(l, lock, uuid, lease)
	t.Then = append(t.Then, leave(l, lock, uuid)...)
	t.Else = append(t.Else, leave(l, lock, uuid)...)
	return t
}

// WithdrawQueued is [Withdraw] of an attempt that may be in the queue.
func WithdrawQueued(l protocol.Layout, lock, uuid string) Txn {
	t := Withdraw(l, lock, uuid)
	t.Then = append(t.Then, leave(l, lock, uuid)...)
	t.Else = append(t.Else, leave(l, lock, uuid)...)
	return t
}

// Queue reads the keys of the tickets and then the tail.
func Queue(l protocol.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{tickets(l, lock, clientv3.WithKeysOnly()), clientv3.OpGet(l.Tail(lock))}}
}

// QueueLength counts the tickets and then reads the tail. A client that was refused a lock that nobody holds learns
// whether anybody queues.
func QueueLength(l protocol.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{tickets(l, lock, clientv3.WithCountOnly()), clientv3.OpGet(l.Tail(lock))}}
}

// AcquirePast takes the lock past a tail behind which nobody queues, and deletes that tail, seen at this mod revision.
func AcquirePast(l protocol.Layout, lock, uuid string, fields []metadata.Field, tail int64) Txn {
	t := take(l, lock, uuid, fields)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Tail(lock)), "=", tail))
	t.Then = append(t.Then, clientv3.OpDelete(l.Tail(lock)))
	return t
}
