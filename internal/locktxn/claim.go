package locktxn

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Claim is what an acquisition requests: a lock with a single holder or, of a lock that several can hold, either a
// share, which has its own record next to the others, or all of it, which has the record of the lock itself.
type Claim struct {
	Lock   string // whose queue it stands in
	Record string // what it writes: a share's record, or that of the lock
	Shares bool   // several can hold the lock

	// Counts means that the claim depends on the shares of others, as read at the revision Counted: it is refused if
	// there is a later one. Readers do not count.
	Counts  bool
	Counted int64
}

// Sole claims a lock with a single holder.
func Sole(lock string) Claim { return Claim{Lock: lock, Record: lock} }

// holders reads the record of the lock and its delay; if several can hold it, the record, those of all shares, and the
// delays of all these.
func (c Claim) holders(l protocol.Layout) []clientv3.Op {
	if !c.Shares {
		return []clientv3.Op{read(l, c.Lock), clientv3.OpGet(l.Delay(c.Lock))}
	}
	from, end := l.Shares(c.Lock)
	first, last := l.LockAndShareDelays(c.Lock)
	return []clientv3.Op{read(l, c.Lock), clientv3.OpGet(from, clientv3.WithRange(end)),
		clientv3.OpGet(first, clientv3.WithRange(last))}
}

// Reads returns how many operations read the holders. The answers to a claim's transactions begin with them.
func (c Claim) Reads() int {
	if c.Shares {
		return 3
	}
	return 2
}

// Holders reads the holders.
func Holders(l protocol.Layout, c Claim) Txn { return Txn{Then: c.holders(l)} }

// take is common to all acquisitions: nobody holds what is claimed, no delay holds it back, and this attempt was not
// cancelled. A share is taken alongside other shares, but never alongside a holder of the whole lock, nor during the
// delay of the lock or of that share. A claim that counts also counts the delays of shares.
//
// Else it reads the holders, which include this attempt if an earlier send of it was committed.
func take(l protocol.Layout, c Claim, uuid string, fields []metadata.Field) Txn {
	record := l.Record(c.Record)
	t := Txn{
		If: []clientv3.Cmp{
			absent(record + metadata.FieldUUID),
			absent(l.Cancelled(uuid)),
			absent(l.Delay(c.Record)),
		},
		Then: make([]clientv3.Op, len(fields), len(fields)+1),
		Else: c.holders(l),
	}
	for i, f := range fields {
		t.Then[i] = clientv3.OpPut(record+f.Name, f.Value)
	}
	if c.Record != c.Lock {
		t.If = append(t.If, absent(l.Field(c.Lock, metadata.FieldUUID)), absent(l.Delay(c.Lock)))
	}
	if c.Counts {
		none := noneSince(c.Counted)
		t.If = append(t.If, none(l.Shares(c.Lock)), none(l.ShareDelays(c.Lock)))
	}
	return t
}

// noneSince returns a function that makes the compare that no key of a range was created after the revision.
func noneSince(revision int64) func(from, end string) clientv3.Cmp {
	return func(from, end string) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(from).WithRange(end), "<", revision+1)
	}
}

// Acquire takes what is claimed if nobody queues for the lock, unless barge is set. Else it reads the holders and, if
// several can hold the lock, the tail.
func Acquire(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, barge bool) Txn {
	t := take(l, c, uuid, fields)
	if !barge {
		t.If = append(t.If, absent(l.Tail(c.Lock)))
	}
	if c.Shares {
		t.Else = append(t.Else, clientv3.OpGet(l.Tail(c.Lock)))
	} else {
		t.Only = c.Lock
	}
	return t
}

// AcquirePast takes what is claimed despite the tail of an empty queue, and deletes that tail, seen at this mod
// revision. Else it reads the holders.
func AcquirePast(l protocol.Layout, c Claim, uuid string, fields []metadata.Field, tail int64) Txn {
	t := take(l, c, uuid, fields)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Tail(c.Lock)), "=", tail))
	t.Then = append(t.Then, clientv3.OpDelete(l.Tail(c.Lock)))
	return t
}

// Cancel ends an acquisition whose outcome is unknown: after its commit the attempt does not hold the lock, stands in
// no queue, and no late send of it can be committed. The tombstone lives as long as the lease.
//
// For a lock that several can hold, it reads the holders: if a record of the attempt is among them, withdraw it with
// [Withdraw]; there will not be another.
func Cancel(l protocol.Layout, c Claim, uuid string, lease clientv3.LeaseID) Txn {
	mark := clientv3.OpPut(l.Cancelled(uuid), c.Lock, clientv3.WithLease(lease))
	t := Withdraw(l, c, uuid)
	if c.Shares {
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
	settle := leave(l, c.Lock, uuid)
	if c.Shares {
		return Txn{Then: append(c.holders(l), settle...)}
	}
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.Value(l.Field(c.Record, metadata.FieldUUID)), "=", uuid)},
		Then: append([]clientv3.Op{remove(l, c.Record)}, settle...),
		Else: settle,
	}
}
