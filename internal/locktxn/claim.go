package locktxn

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Claim is what an acquisition requests: a lock with a single holder or, of a multi-holder lock, either a share, which
// has its own record next to the others, or all of it, which has the record of the lock itself.
type Claim struct {
	Lock        string // the lock in whose queue it waits
	Record      string // the record that it writes: a share's, or that of the lock
	MultiHolder bool   // several can hold the lock

	// CountsShares means that the claim depends on the shares of others, as read at the revision CountedAt, 0 if none
	// were read: it is refused if there is a later one. Readers do not count.
	CountsShares bool
	CountedAt    int64
}

// PlainClaim returns the claim of a lock with a single holder.
func PlainClaim(lock string) Claim { return Claim{Lock: lock, Record: lock, CountsShares: true} }

// HolderReads is the number of operations that read the holders. The answers to a claim's transactions begin with them.
const HolderReads = 3

// readHolders reads the record of the lock, those of its shares, and its delay; of a multi-holder lock also the delays
// of shares.
func (c Claim) readHolders(l protocol.Layout) []clientv3.Op {
	return []clientv3.Op{readRecord(l, c.Lock), readShares(l, c.Lock), c.readDelays(l)}
}

func readShares(l protocol.Layout, lock string, opts ...clientv3.OpOption) clientv3.Op {
	from, end := l.Shares(lock)
	return clientv3.OpGet(from, append(opts, clientv3.WithRange(end))...)
}

func (c Claim) readDelays(l protocol.Layout, opts ...clientv3.OpOption) clientv3.Op {
	if !c.MultiHolder {
		return clientv3.OpGet(l.Delay(c.Lock), opts...)
	}
	first, last := l.LockAndShareDelays(c.Lock)
	return clientv3.OpGet(first, append(opts, clientv3.WithRange(last))...)
}

// readForWaiter reads the holders for a waiter, but no shares of a lock with a single holder: they are rare, and they
// refuse its turn.
func (c Claim) readForWaiter(l protocol.Layout) []clientv3.Op {
	if c.MultiHolder {
		return c.readHolders(l)
	}
	return []clientv3.Op{readRecord(l, c.Lock), c.readDelays(l)}
}

// WaiterReads returns the number of operations with which the answers to [Join] and [ReadPosition] begin.
func (c Claim) WaiterReads() int {
	if c.MultiHolder {
		return HolderReads
	}
	return HolderReads - 1
}

// ReadHolders reads the holders and the delays of the lock.
func ReadHolders(l protocol.Layout, c Claim) Txn { return Txn{Then: c.readHolders(l)} }

// claimTxn returns the compares and writes of all acquisitions: nobody holds what is claimed, no delay holds it back,
// and this attempt was not cancelled. A share is taken alongside other shares, but never alongside a holder of the
// whole lock, nor during the delay of the lock or of that share. A claim that counts also counts the delays of shares,
// except that of a lock with a single holder.
//
// Else it reads the holders, which include this attempt if an earlier send of it was committed.
func claimTxn(l protocol.Layout, c Claim, uuid string, fields []metadata.Field) Txn {
	record := l.Record(c.Record)
	t := Txn{
		If: []clientv3.Cmp{
			absent(record + lockrecord.FieldUUID),
			absent(l.Cancelled(uuid)),
			absent(l.Delay(c.Record)),
		},
		Then: make([]clientv3.Op, len(fields), len(fields)+1),
		Else: c.readHolders(l),
	}
	for i, f := range fields {
		t.Then[i] = clientv3.OpPut(record+f.Name, f.Value)
	}
	if c.Record != c.Lock {
		t.If = append(t.If, absent(l.Field(c.Lock, lockrecord.FieldUUID)), absent(l.Delay(c.Lock)))
	}
	if c.CountsShares {
		none := noneSince(c.CountedAt)
		t.If = append(t.If, none(l.Shares(c.Lock)))
		if c.MultiHolder {
			t.If = append(t.If, none(l.ShareDelays(c.Lock)))
		}
	}
	return t
}

// noneSince returns a function that returns the compare that no key of a range was created after the revision.
func noneSince(revision int64) func(from, end string) clientv3.Cmp {
	return func(from, end string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "<", revision+1)
	}
}

// Acquire takes what is claimed if nobody queues for the lock, unless skipQueue is set. Else it reads the holders and
// the tail.
func Acquire(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, skipQueue bool) Txn {
	t := claimTxn(l, c, uuid, fields)
	if !skipQueue {
		t.If = append(t.If, absent(l.Tail(c.Lock)))
	}
	t.Else = append(t.Else, clientv3.OpGet(l.Tail(c.Lock)))
	if !c.MultiHolder {
		t.OnlyRecord = c.Lock
	}
	return t
}

// AcquirePastTail takes what is claimed although the empty queue has a tail, and deletes that tail, seen at this mod
// revision. Else it reads the holders.
func AcquirePastTail(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, tail int64) Txn {
	t := claimTxn(l, c, uuid, fields)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Tail(c.Lock)), "=", tail))
	t.Then = append(t.Then, clientv3.OpDelete(l.Tail(c.Lock)))
	return t
}

// Cancel ends an acquisition whose outcome is unknown: after its commit the attempt does not hold the lock, stands in
// no queue, and no late send of it can be committed. The tombstone lives as long as the lease.
//
// For a multi-holder lock, it reads the holders: if a record of the attempt is among them, withdraw it with [Withdraw];
// there will not be another.
func Cancel(l protocol.Layout, c Claim, uuid string, lease clientv3.LeaseID) Txn {
	mark := clientv3.OpPut(l.Cancelled(uuid), c.Lock, clientv3.WithLease(lease))
	t := Withdraw(l, c, uuid)
	if c.MultiHolder {
		t.Then = append(t.Then, mark)
		return t
	}
	t.Then = slices.Insert(t.Then, 0, mark)
	t.Else = slices.Insert(t.Else, 0, mark)
	return t
}

// Withdraw removes what an acquisition may have got, as [Cancel] does, but does not prevent the commit of a late send.
// No branch has a put, so it works when etcd is out of space.
func Withdraw(l protocol.Layout, c Claim, uuid string) Txn {
	cleanUp := leaveQueue(l, c.Lock, uuid)
	if c.MultiHolder {
		return Txn{Then: append(c.readHolders(l), cleanUp...)}
	}
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.Value(l.Field(c.Record, lockrecord.FieldUUID)), "=", uuid)},
		Then: append([]clientv3.Op{deleteRecord(l, c.Record)}, cleanUp...),
		Else: cleanUp,
	}
}
