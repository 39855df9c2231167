package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Claim is what an acquisition asks for of a lock that several can hold: a share of it, which is a record of its own
// beside those of the others, or all of it, which is the record of the lock itself.
type Claim struct {
	Lock   string // whose queue it stands in
	Record string // what it writes: a share's record, or that of the lock

	// Counts says that the claim depends on the shares that others have, as they were at the revision Counted: it is
	// refused when there is one that came later. Readers do not count.
	Counts  bool
	Counted int64
}

// claim is what every acquisition of a share has in common. A share is taken beside other shares, never beside a holder
// of the lock, nor during the delay of the lock or of that share. A claim that counts counts the delays of shares, too.
//
// Else it reads the holders, see [Holders].
func claim(l protocol.Layout, c Claim, uuid string, fields []metadata.Field) Txn {
	t := take(l, c.Record, uuid, fields)
	if c.Record != c.Lock {
		t.If = append(t.If, absent(l.Field(c.Lock, metadata.FieldUUID)), absent(l.Delay(c.Lock)))
	}
	if c.Counts {
		none := noneSince(c.Counted)
		t.If = append(t.If, none(l.Shares(c.Lock)), none(l.ShareDelays(c.Lock)))
	}
	t.Else = holders(l, c.Lock)
	return t
}

// noneSince returns what compares that no key of a range was created after a revision.
func noneSince(revision int64) func(from, end string) clientv3.Cmp {
	return func(from, end string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "<", revision+1)
	}
}

// holders is [Holders] as operations.
func holders(l protocol.Layout, lock string) []clientv3.Op {
	from, end := l.Shares(lock)
	first, last := l.DelaysAbout(lock)
	return []clientv3.Op{read(l, lock), clientv3.OpGet(from, clientv3.WithRange(end)),
		clientv3.OpGet(first, clientv3.WithRange(last))}
}

// Holders reads the record of the lock, those of all shares, and the delays of all these.
func Holders(l protocol.Layout, lock string) Txn { return Txn{Then: holders(l, lock)} }

// AcquireShare makes the claim if nobody queues (unless barge is set). Else it reads the holders and the tail.
func AcquireShare(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, barge bool) Txn {
	t := claim(l, c, uuid, fields)
	if !barge {
		t.If = append(t.If, absent(l.Tail(c.Lock)))
	}
	t.Else = append(t.Else, clientv3.OpGet(l.Tail(c.Lock)))
	return t
}

// AcquireSharePast is [AcquireShare] past a tail behind which nobody queues, and deletes that tail, seen at this mod
// revision.
func AcquireSharePast(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, tail int64) Txn {
	t := claim(l, c, uuid, fields)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Tail(c.Lock)), "=", tail))
	t.Then = append(t.Then, clientv3.OpDelete(l.Tail(c.Lock)))
	return t
}

// EnqueueShare makes the claim as [AcquireShare] does or else, if others queue already, joins them in the same
// transaction. If nobody queues it reads the holders: there may be room, by another claim.
//
// Else it reads the holders, then answers in a nested transaction, see [Joined].
func EnqueueShare(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, ticket metadata.Ticket,
	lease clientv3.LeaseID) Txn {
	t := claim(l, c, uuid, fields)
	t.If = append(t.If, absent(l.Tail(c.Lock)), absent(l.Ticket(c.Lock, uuid)))
	// An earlier send may have made the claim: a holder must not queue behind itself.
	mine := clientv3.Compare(clientv3.Value(l.Field(c.Record, metadata.FieldUUID)), "=", uuid)
	queued := clientv3.OpTxn([]clientv3.Cmp{absent(l.Tail(c.Lock))}, nil,
		[]clientv3.Op{join(l, c.Lock, uuid, ticket, lease)})
	t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{mine}, nil, []clientv3.Op{queued}))
	return t
}

// JoinShare joins the queue no matter who holds the lock: there is no room, or too many clients try to claim it at
// once. It reads the holders and answers as [EnqueueShare] does.
func JoinShare(l protocol.Layout, lock, uuid string, ticket metadata.Ticket, lease clientv3.LeaseID) Txn {
	return Txn{Then: append(holders(l, lock), join(l, lock, uuid, ticket, lease))}
}

// TakeShare makes the claim of the first in the queue, and ends its ticket: the next waiter is the first then, and
// there may be room for it, too.
//
// Else it reads the holders, the ticket and the tail: without the ticket, and without a hold, the position is lost;
// without the tail newcomers overtake the queue, see [RestoreTail].
func TakeShare(l protocol.Layout, c Claim, p Position, fields []metadata.Field) Txn {
	t := claim(l, c, p.UUID, fields)
	ticket := l.Ticket(p.Lock, p.UUID)
	t.If = append(t.If, clientv3.Compare(clientv3.CreateRevision(ticket), "=", p.Revision))
	t.Then = append(t.Then, leave(l, p.Lock, p.UUID)...)
	t.Else = append(t.Else, clientv3.OpGet(ticket), readTailKey(l, p.Lock))
	return t
}

// ReadAheadShare reads what a waiter must know. While the ticket before its own is there: its own ticket, that one and
// the tail. Otherwise the holders, its own ticket, the tail and, unless the waiter knows that it is the first, the
// newest ticket older than its own: none means that it is the first.
func ReadAheadShare(l protocol.Layout, p Position, before string, first bool) Txn {
	own := clientv3.OpGet(l.Ticket(p.Lock, p.UUID))
	tail := readTailKey(l, p.Lock)
	t := Txn{Then: append(holders(l, p.Lock), own, tail)}
	if !first {
		t.Then = append(t.Then, older(l, p, clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	}
	if before != "" {
		ticket := l.Ticket(p.Lock, before)
		t.If = []clientv3.Cmp{absent(ticket)}
		t.Else = []clientv3.Op{own, clientv3.OpGet(ticket, clientv3.WithKeysOnly()), tail}
	}
	return t
}

// ReadStandingShare reads the holders, and tickets as [ReadStanding] does.
func ReadStandingShare(l protocol.Layout, lock string) Txn {
	return Txn{Then: append(holders(l, lock), some(l, lock))}
}

// CancelShare ensures that no late send of the attempt can be committed, and that it has no ticket. It reads the
// holders: if a record of the attempt is among them, take it back with [Withdraw]; there will not be another.
func CancelShare(l protocol.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	t := WithdrawShare(l, lock, uuid)
	t.Then = append(t.Then, clientv3.OpPut(l.Cancelled(uuid), lock, clientv3.WithLease(lease)))
	return t
}

// WithdrawShare is [CancelShare] without the tombstone: the way out when etcd is out of space.
func WithdrawShare(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: append(holders(l, lock), leave(l, lock, uuid)...)}
}
