package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Place is a place in the queue before a lock: a ticket, which no other attempt ever uses again.
type Place struct {
	Lock     string
	UUID     string // of the attempt; the last part of the ticket's key
	Revision int64  // create revision of the ticket
}

// Enqueue takes the lock as Acquire does or else, in the same transaction, gets in line: it puts the ticket and becomes the tail.
//
// Else it reads the record, then answers in a transaction of its own, see [Joined].
func Enqueue(l metadata.Layout, lock, uuid string, fields []metadata.Field, ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	t := take(l, lock, uuid, fields)
	t.If = append(t.If, absent(l.Tail(lock)), absent(l.Ticket(lock, uuid))) // an earlier send may have got in line
	// An earlier send may also have taken the lock: a holder must not stand in line behind itself.
	mine := clientv3.Compare(clientv3.Value(l.Field(lock, metadata.FieldUUID)), "=", uuid)
	t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{mine}, nil, []clientv3.Op{join(l, lock, uuid, ticket, lease)}))
	return t
}

// join puts the ticket and becomes the tail, unless the ticket is there already: then it reads that.
func join(l metadata.Layout, lock, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) clientv3.Op {
	key := l.Ticket(lock, uuid)
	return clientv3.OpTxn(
		[]clientv3.Cmp{absent(key), absent(l.Cancelled(uuid))},
		[]clientv3.Op{
			clientv3.OpPut(key, metadata.Marshal(ticket), clientv3.WithLease(lease)),
			clientv3.OpPut(l.Tail(lock), uuid, clientv3.WithLease(lease), clientv3.WithPrevKV()),
		},
		[]clientv3.Op{clientv3.OpGet(key)},
	)
}

// Joined reads the answer of [Enqueue], [EnqueueShare] or [Join] when it did not take the lock: the create revision of the ticket, 0 where there is none, and
// who is before it, empty where that is not known. An answer of this very transaction at a revision, not a repetition's, is what
// knows it.
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

// TakeTurn takes the lock for the first in the queue. before is who was before it, and is gone; empty for nobody. The ticket
// stays, with the mark of a holder: its deletion hands the lock over.
//
// Else it reads the record and the ticket: without the ticket the place is lost.
func TakeTurn(l metadata.Layout, p Place, before string, fields []metadata.Field, ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	t := take(l, p.Lock, p.UUID, fields)
	key := l.Ticket(p.Lock, p.UUID)
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(key), "=", p.Revision))
	if before != "" {
		t.If = append(t.If, absent(l.Ticket(p.Lock, before)))
	}
	ticket.Holding, ticket.TimeoutAt = true, metadata.Time{}
	t.Then = append(t.Then, clientv3.OpPut(key, metadata.Marshal(ticket), clientv3.WithLease(lease)))
	t.Else = append(t.Else, clientv3.OpGet(key))
	return t
}

// LookAhead reads what a waiter must know. While who is before it is there: both tickets, its own first. Otherwise its own ticket,
// the lock's uuid key and the newest ticket that is older than its own: none means that it is the first.
//
// The last of these reads the whole queue in etcd, so it is for those who do not know who is before them.
func LookAhead(l metadata.Layout, p Place, before string) Txn {
	own := clientv3.OpGet(l.Ticket(p.Lock, p.UUID))
	t := Txn{Then: []clientv3.Op{own, clientv3.OpGet(l.Field(p.Lock, metadata.FieldUUID)), older(l, p, clientv3.WithLimit(1))}}
	if before != "" {
		ticket := l.Ticket(p.Lock, before)
		t.If = []clientv3.Cmp{absent(ticket)}
		t.Else = []clientv3.Op{own, clientv3.OpGet(ticket)}
	}
	return t
}

// LookAtLock is LookAhead of who is known to be the first: it reads its own ticket and the lock's uuid key.
func LookAtLock(l metadata.Layout, p Place) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpGet(l.Ticket(p.Lock, p.UUID)), clientv3.OpGet(l.Field(p.Lock, metadata.FieldUUID))}}
}

// older reads the tickets that are older than p, newest first.
func older(l metadata.Layout, p Place, opts ...clientv3.OpOption) clientv3.Op {
	opts = append(opts, clientv3.WithMaxCreateRev(p.Revision-1), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	return tickets(l, p.Lock, opts...)
}

// tickets reads the tickets of a lock, and not its tail: that sorts before all of them, as ticket keys begin with a digit or a letter.
func tickets(l metadata.Layout, lock string, opts ...clientv3.OpOption) clientv3.Op {
	queue := l.Queue(lock)
	return clientv3.OpGet(queue+"/", append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd(queue)))...)
}

// Leave gives a place in the queue up, of a waiter or of one that held the lock, and reads what a person who waited wants to know:
// the record and the keys of who is before it.
func Leave(l metadata.Layout, p Place) Txn {
	return Txn{Then: append([]clientv3.Op{read(l, p.Lock), older(l, p, clientv3.WithKeysOnly())}, leave(l, p.Lock, p.UUID)...)}
}

// Standing reads the record and the keys of who is before p in the queue.
func Standing(l metadata.Layout, p Place) Txn {
	return Txn{Then: []clientv3.Op{read(l, p.Lock), older(l, p, clientv3.WithKeysOnly())}}
}

// leave deletes the ticket, and the tail if that is the attempt's own.
func leave(l metadata.Layout, lock, uuid string) []clientv3.Op {
	tail := l.Tail(lock)
	return []clientv3.Op{
		clientv3.OpDelete(l.Ticket(lock, uuid)),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(tail), "=", uuid)}, []clientv3.Op{clientv3.OpDelete(tail)}, nil),
	}
}

// HandOver is Release of a hold that came by the queue: it wakes the next in line.
func HandOver(l metadata.Layout, h Hold) Txn {
	t := Release(l, h)
	t.Then = append(t.Then, leave(l, h.Lock, h.UUID)...)
	return t
}

// CancelQueued is Cancel of an attempt that may stand in line.
func CancelQueued(l metadata.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	t := Cancel(l, lock, uuid, lease)
	t.Then = append(t.Then, leave(l, lock, uuid)...)
	t.Else = append(t.Else, leave(l, lock, uuid)...)
	return t
}

// WithdrawQueued is Withdraw of an attempt that may stand in line.
func WithdrawQueued(l metadata.Layout, lock, uuid string) Txn {
	t := Withdraw(l, lock, uuid)
	t.Then = append(t.Then, leave(l, lock, uuid)...)
	t.Else = append(t.Else, leave(l, lock, uuid)...)
	return t
}

// Queue reads the keys of the tickets and then the tail. Who was refused a lock that nobody holds learns whether anybody queues.
func Queue(l metadata.Layout, lock string) Txn {
	return Txn{Then: []clientv3.Op{tickets(l, lock, clientv3.WithKeysOnly()), clientv3.OpGet(l.Tail(lock))}}
}

// AcquirePast takes the lock past a tail behind which nobody queues, and deletes that. It was seen at this mod revision.
func AcquirePast(l metadata.Layout, lock, uuid string, fields []metadata.Field, tail int64) Txn {
	t := take(l, lock, uuid, fields)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Tail(lock)), "=", tail))
	t.Then = append(t.Then, clientv3.OpDelete(l.Tail(lock)))
	return t
}
