package locktxn

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Position identifies a waiter in the queue of a lock by its ticket, which no other attempt ever uses.
type Position struct {
	Lock     string
	UUID     string // of the attempt; the last part of the ticket's key
	Revision int64  // create revision of the ticket
}

// Enqueue takes what is claimed as [Acquire] does or else, in the same transaction, joins the queue: it puts the ticket
// and becomes the tail. For a multi-holder lock, it joins only if others queue already: otherwise another claim may
// find room.
//
// Else it reads the holders, then answers in a nested transaction, see [JoinResult].
func Enqueue(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, ticket metadata.Ticket,
	lease clientv3.LeaseID) Txn {
	t := claimTxn(l, c, uuid, fields)
	t.If = append(t.If, absent(l.Tail(c.Lock)), absent(l.Ticket(c.Lock, uuid))) // an earlier send may have joined
	queued := joinQueue(l, c.Lock, uuid, ticket, lease)
	if c.MultiHolder {
		queued = clientv3.OpTxn([]clientv3.Cmp{absent(l.Tail(c.Lock))}, nil, []clientv3.Op{queued})
	}
	// An earlier send may also have made the claim: a holder must not queue behind itself.
	mine := clientv3.Compare(clientv3.Value(l.Field(c.Record, lockrecord.FieldUUID)), "=", uuid)
	t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{mine}, nil, []clientv3.Op{queued}))
	return t
}

// Join puts a waiter into the queue, whether or not the lock is held. It reads the holders, and answers as an [Enqueue]
// that did not take the lock. Without a record to write, it is a fraction of the size.
func Join(l protocol.Layout, c Claim, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	return Txn{Then: append(c.readForWaiter(l), joinQueue(l, c.Lock, uuid, ticket, lease))}
}

// joinQueue puts the ticket and becomes the tail. If the ticket exists already, it reads it.
func joinQueue(l protocol.Layout, lock, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) clientv3.Op {
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

// JoinResult reads the answer of a [Join], or of an [Enqueue] that did not take the lock. It returns the create
// revision of the ticket, 0 if there is none, and the ticket before it, empty if unknown: only the send that put the
// ticket knows it, not a repetition.
func JoinResult(r *clientv3.TxnResponse) (revision int64, before string) {
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

// AcquireInTurn takes what is claimed for the first waiter in the queue. before is the ticket that was ahead and is
// gone; empty for none. The ticket of a single holder stays, marked as holding: its deletion hands the lock over. The
// ticket of a share is deleted: the next waiter is then first, and there may be room for it, too.
//
// Else it reads the holders, the ticket and the tail: without a ticket and without a hold, the position is lost;
// without a tail, newcomers overtake the queue, see [RestoreTail].
func AcquireInTurn(l protocol.Layout, c Claim, p Position, before string, fields []metadata.Field,
	ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	t := claimTxn(l, c, p.UUID, fields)
	key := l.Ticket(p.Lock, p.UUID)
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(key), "=", p.Revision))
	if before != "" {
		t.If = append(t.If, absent(l.Ticket(p.Lock, before)))
	}
	if c.MultiHolder {
		t.Then = append(t.Then, leaveQueue(l, p.Lock, p.UUID)...)
	} else {
		ticket.Holding = true
		ticket.TimeoutAt = metadata.Time{}
		t.Then = append(t.Then, clientv3.OpPut(key, protocol.Marshal(ticket), clientv3.WithLease(lease)))
	}
	t.Else = append(t.Else, clientv3.OpGet(key), readTailKey(l, p.Lock))
	return t
}

// ReadPosition reads whether it is the waiter's turn. While the ticket before its own exists, that is its own ticket,
// the tail and that ticket. Otherwise it is the holders, its own ticket, the tail and, unless the waiter knows that it
// is the first, the newest ticket older than its own: none means that it is the first.
//
// For the last of these etcd reads the whole queue, so it is only for waiters that do not know who is ahead.
func ReadPosition(l protocol.Layout, c Claim, p Position, before string, first bool) Txn {
	own := clientv3.OpGet(l.Ticket(p.Lock, p.UUID))
	tail := readTailKey(l, p.Lock)
	t := Txn{Then: append(c.readForWaiter(l), own, tail)}
	if !first {
		t.Then = append(t.Then, readOlderTickets(l, p, clientv3.WithLimit(1)))
	}
	if before != "" {
		ticket := l.Ticket(p.Lock, before)
		t.If = []clientv3.Cmp{absent(ticket)}
		t.Else = []clientv3.Op{own, tail, clientv3.OpGet(ticket, clientv3.WithKeysOnly())}
	}
	return t
}

func readTailKey(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Tail(lock), clientv3.WithKeysOnly())
}

// readOlderTickets reads the tickets older than p, newest first.
func readOlderTickets(l protocol.Layout, p Position, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithMaxCreateRev(p.Revision-1), clientv3.WithSort(clientv3.SortByCreateRevision,
		clientv3.SortDescend))
	return readTickets(l, p.Lock, opts...)
}

// readTickets reads the tickets of a lock without its tail, which sorts before all of them, because tickets begin with
// a digit or a letter.
func readTickets(l protocol.Layout, lock string, opts ...clientv3.OpOption) clientv3.Op {
	queue := l.Queue(lock)
	return clientv3.OpGet(queue+"/", append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd(queue)))...)
}

// Leave takes a waiter out of the queue, unless it is the tail, and reads the rest. If it is the tail, it reads the
// rest and then the two newest tickets: a waiter that leaves as the tail moves the tail back to the ticket before its
// own, see [NewestExcept] and [LeaveAsTail].
func Leave(l protocol.Layout, lock, uuid string, rest ...clientv3.Op) Txn {
	return Txn{
		If:   []clientv3.Cmp{tailNames(l, lock, uuid)},
		Then: slices.Concat(rest, []clientv3.Op{readNewestTickets(l, lock, 2)}),
		Else: slices.Concat(rest, []clientv3.Op{clientv3.OpDelete(l.Ticket(lock, uuid))}),
	}
}

// NewestTicket identifies the newest ticket of a queue, which its tail names. The zero NewestTicket means none.
type NewestTicket struct {
	UUID     string
	Revision int64 // create revision of the ticket
	Lease    clientv3.LeaseID
}

// NewestExcept returns the first of these tickets, which are the newest first, that is not the ticket of this uuid.
func NewestExcept(l protocol.Layout, tickets []*mvccpb.KeyValue, except string) NewestTicket {
	for _, kv := range tickets {
		if id := l.Parse(string(kv.Key)).ID; id != except {
			return NewestTicket{UUID: id, Revision: kv.CreateRevision, Lease: clientv3.LeaseID(kv.Lease)}
		}
	}
	return NewestTicket{}
}

// LeaveAsTail takes the newest waiter out of the queue and moves the tail back to the ticket before it, with the lease
// of that ticket. If there is none, the queue is empty, and the tail is deleted.
//
// If its compares fail, one of the two has changed. If it is refused because the lease is gone, the ticket before it is
// gone, too, or about to be.
func LeaveAsTail(l protocol.Layout, lock, uuid string, before NewestTicket) Txn {
	t := Txn{If: []clientv3.Cmp{tailNames(l, lock, uuid)}, Then: []clientv3.Op{clientv3.OpDelete(l.Ticket(lock, uuid))}}
	if before.Revision == 0 {
		t.Then = append(t.Then, clientv3.OpDelete(l.Tail(lock)))
		return t
	}
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(l.Ticket(lock, before.UUID)), "=", before.Revision))
	t.Then = append(t.Then, clientv3.OpPut(l.Tail(lock), before.UUID, clientv3.WithLease(before.Lease)))
	return t
}

// LeaveWithoutPut takes a waiter out of the queue and deletes the tail if it names the waiter. Unlike [Leave] and
// [LeaveAsTail], it works when etcd is out of space. Newcomers overtake the queue until another waiter restores the
// tail.
func LeaveWithoutPut(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: leaveQueue(l, lock, uuid)}
}

// ReadTail reads the tail and the newest ticket.
func ReadTail(l protocol.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{readTailKey(l, lock), readNewestTickets(l, lock, 1)}}
}

// RestoreTail puts a tail if a queue has none: the newest waiter died, and its tail expired with its lease. last was
// the newest ticket when it was read: a waiter that joined since has put a tail.
func RestoreTail(l protocol.Layout, lock string, last NewestTicket) Txn {
	return Txn{
		If: []clientv3.Cmp{
			absent(l.Tail(lock)),
			clientv3.Compare(clientv3.CreateRevision(l.Ticket(lock, last.UUID)), "=", last.Revision),
		},
		Then: []clientv3.Op{clientv3.OpPut(l.Tail(lock), last.UUID, clientv3.WithLease(last.Lease))},
	}
}

// KnownHolders identifies the holders of a lock as a waiter last read them.
type KnownHolders struct {
	Lock        string
	Token       int64 // of the record of the lock; 0 if there was none
	Delay       int64 // mod revision of the delay of the lock; 0 if there was none
	MultiHolder bool  // several can hold it
	Revision    int64 // at which they were read
}

// ReadChanges reads the holders if there are others than a waiter knows. If they are the same, or only shares were
// released, it counts the keys of the shares and the delays; else it reads the holders and the delays. In both cases it
// then counts each of these tickets: 1 or 0.
func ReadChanges(l protocol.Layout, k KnownHolders, tickets []string) Txn {
	c := Claim{Lock: k.Lock, MultiHolder: k.MultiHolder}
	t := Txn{
		If: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(l.Field(k.Lock, lockrecord.FieldUUID)), "=",
			k.Token), clientv3.Compare(clientv3.ModRevision(l.Delay(k.Lock)), "=", k.Delay),
			noneSince(k.Revision)(l.Shares(k.Lock))},
		Then: []clientv3.Op{readShares(l, k.Lock, clientv3.WithCountOnly()), c.readDelays(l, clientv3.WithCountOnly())},
		Else: c.readHolders(l),
	}
	for _, uuid := range tickets {
		count := clientv3.OpGet(l.Ticket(k.Lock, uuid), clientv3.WithCountOnly())
		t.Then, t.Else = append(t.Then, count), append(t.Else, count)
	}
	return t
}

// readNewestTickets reads the n newest tickets, the newest first. It reads their values, too, because etcd does not
// return leases without them.
func readNewestTickets(l protocol.Layout, lock string, n int64) clientv3.Op {
	return readTickets(l, lock, clientv3.WithLimit(n), clientv3.WithSort(clientv3.SortByCreateRevision,
		clientv3.SortDescend))
}

// maxTicketsRead is how many tickets a waiter that gives up reads, to report its position. To read only those ahead of
// it, etcd would read the whole queue for each waiter: when many give up at once, the cost grows with the square of
// their number.
const maxTicketsRead = 100

// ReadHoldersAndTickets reads the holders, the keys of up to [maxTicketsRead] tickets, and the number of all.
func ReadHoldersAndTickets(l protocol.Layout, c Claim) Txn {
	// in the order of their keys, which is not that of their ages
	some := readTickets(l, c.Lock, clientv3.WithKeysOnly(), clientv3.WithLimit(maxTicketsRead))
	return Txn{Then: append(c.readHolders(l), some)}
}

// ReadTicketsAhead reads the keys of the tickets older than p, the newest first.
func ReadTicketsAhead(l protocol.Layout, p Position) Txn {
	return Txn{Then: []clientv3.Op{readOlderTickets(l, p, clientv3.WithKeysOnly())}}
}

// ReadQueueLength counts the tickets and then reads the tail. It tells a client that was refused a free lock whether
// others queue.
func ReadQueueLength(l protocol.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{readTickets(l, lock, clientv3.WithCountOnly()), clientv3.OpGet(l.Tail(lock))}}
}

// ReadUnlockers reads the presence of up to 100 unlockers.
func ReadUnlockers(l protocol.Layout) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpGet(l.Unlockers(), clientv3.WithPrefix(), clientv3.WithLimit(100))}}
}

// RemoveTicket takes a waiter out of the queue, if its ticket is still the one that was seen. No branch has a put: a
// tail that names the ticket stays, and keeps newcomers behind the queue until its waiter, if alive, moves it back, or
// its lease ends.
func RemoveTicket(l protocol.Layout, w metadata.Waiter) Txn {
	key := l.Ticket(w.Name, w.ID)
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", w.Revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	}
}
