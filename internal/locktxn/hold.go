package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Hold identifies one hold of a lock. UUID and Token are compared together, so that a late transaction of an older hold
// never touches a newer one.
type Hold struct {
	Lock  string
	UUID  string
	Token int64 // create revision of the uuid key
}

// Guard returns the compare that is true while h is held, for the holder's own writes.
func Guard(l protocol.Layout, h Hold) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.Field(h.Lock, lockrecord.FieldUUID)), "=", h.Token)
}

// HeldBy returns the compares that are true while h is held.
func HeldBy(l protocol.Layout, h Hold) []clientv3.Cmp {
	key := l.Field(h.Lock, lockrecord.FieldUUID)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(key), "=", h.UUID),
		clientv3.Compare(clientv3.CreateRevision(key), "=", h.Token),
	}
}

// FindHold reads the record of a lock and the ending of the hold with this uuid: either the record is that hold's, or
// the ending says what became of it.
func FindHold(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: []clientv3.Op{readRecord(l, lock), clientv3.OpGet(l.History(uuid))}}
}

// ReadHold reads the keys of the record of h that others may have written, if it is still held: those from alert_at to
// extended, with asked and auto_unlock_at between them. Else it reads the ending, if there is one, and the record.
func ReadHold(l protocol.Layout, h Hold) Txn {
	return Txn{
		If:   HeldBy(l, h),
		Then: []clientv3.Op{readMutableFields(l, h.Lock)},
		Else: []clientv3.Op{clientv3.OpGet(l.History(h.UUID)), readRecord(l, h.Lock)},
	}
}

// readMutableFields reads the keys of a record that others may write while it is held.
func readMutableFields(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Field(lock, lockrecord.FieldAlertAt),
		clientv3.WithRange(l.Field(lock, lockrecord.FieldExtended)+"\x00"))
}

// WatchedRange returns the half-open range of the keys of a record that a holder watches: from asked to uuid, with
// auto_unlock_at, extended, and others between them that are written once. alive is not in the range, so a holder is
// not notified of its own reports.
func WatchedRange(l protocol.Layout, lock string) (from, end string) {
	return l.Field(lock, lockrecord.FieldAsked), l.Field(lock, lockrecord.FieldUUID) + "\x00"
}

// Alive writes the holder's progress and moves the deadlines forward, never back: the time format makes byte order the
// order of times. If the stored deadline is already as late, the alert still moves forward, and [AliveResult] returns
// what was read. Else the hold is lost, and the record shows to whom.
func Alive(l protocol.Layout, h Hold, alertAt, autoUnlockAt, alive string) Txn {
	alert := l.Field(h.Lock, lockrecord.FieldAlertAt)
	deadline := l.Field(h.Lock, lockrecord.FieldAutoUnlockAt)
	return Txn{
		If: HeldBy(l, h),
		Then: []clientv3.Op{
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(deadline), "<", autoUnlockAt)},
				[]clientv3.Op{clientv3.OpPut(alert, alertAt), clientv3.OpPut(deadline, autoUnlockAt)},
				// It is read before alive is written: another process with the uuid may have reported progress.
				[]clientv3.Op{readMutableFields(l, h.Lock), putLater(alert, alertAt)}),
			clientv3.OpPut(l.Field(h.Lock, lockrecord.FieldAlive), alive),
		},
		Else: []clientv3.Op{readRecord(l, h.Lock)},
	}
}

// AliveResult reads the answer of a successful [Alive]: moved means that it moved the deadlines. Otherwise the stored
// deadline was already as late, and others are the keys that [ReadHold] reads, too.
func AliveResult(r *clientv3.TxnResponse) (others *clientv3.GetResponse, moved bool) {
	if len(r.Responses) == 0 || r.Responses[0].GetResponseTxn() == nil {
		return &clientv3.GetResponse{}, false // not from etcd
	}
	deadlines := (*clientv3.TxnResponse)(r.Responses[0].GetResponseTxn())
	if deadlines.Succeeded {
		return nil, true
	}
	return Keys(deadlines, 0), false
}

// Heartbeat is [Alive] for a background task that knows only that the process lives. It takes effect only if the last
// progress report is the one seen at this mod revision, 0 for none. Otherwise another process with the uuid has
// reported progress since, and what the background task knows is outdated.
func Heartbeat(l protocol.Layout, h Hold, alertAt, autoUnlockAt, alive string, revision int64) Txn {
	t := Alive(l, h, alertAt, autoUnlockAt, alive)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Field(h.Lock, lockrecord.FieldAlive)), "=", revision))
	return t
}

// Detach writes that the hold outlives the process that its record names, and deletes the witnesses' statements about
// that process: from then on none can state its death. Else it reads the ending and the record.
func Detach(l protocol.Layout, h Hold) Txn {
	return Txn{
		If: HeldBy(l, h),
		Then: []clientv3.Op{
			clientv3.OpPut(l.Field(h.Lock, lockrecord.FieldDetached), "true"),
			clientv3.OpDelete(l.Death(h.UUID)),
			clientv3.OpDelete(l.Suspicion(h.UUID)),
		},
		Else: []clientv3.Op{clientv3.OpGet(l.History(h.UUID)), readRecord(l, h.Lock)},
	}
}

// Release releases the lock. No branch has a put, so it works while etcd is out of space. It reads nothing: a caller
// that must know why the lock was no longer held sends [ReadHold], so that the others need not pay for the branch.
func Release(l protocol.Layout, h Hold) Txn {
	return Txn{
		If:   HeldBy(l, h),
		Then: []clientv3.Op{deleteRecord(l, h.Lock)},
	}
}

// ReleaseIndeterminate is [Release] for a hold whose acquisition has another, unanswered send: after its commit that
// send cannot be committed and has no ticket. queue is the lock in whose queue it may be. The tombstone lives as long
// as the lease. Else nothing is released, but the rest is done all the same.
func ReleaseIndeterminate(l protocol.Layout, queue string, h Hold, lease clientv3.LeaseID) Txn {
	cleanUp := append(leaveQueue(l, queue, h.UUID),
		clientv3.OpPut(l.Cancelled(h.UUID), queue, clientv3.WithLease(lease)))
	t := Release(l, h)
	t.Then = append(t.Then, cleanUp...)
	t.Else = cleanUp
	return t
}

// ReleaseWith releases the lock as release does, and does the caller's writes, if the caller's compares hold too. It
// leaves this tombstone under the hold's uuid, with this lease, which tells a repetition that an earlier send was
// committed: the writes cannot be distinguished from those of others, and the record is gone either way.
//
// Else it reads the tombstone, the record, and then what [FailedCompares] reads.
func ReleaseWith(l protocol.Layout, h Hold, release Txn, tombstone string, lease clientv3.LeaseID,
	compares []clientv3.Cmp, writes []clientv3.Op) Txn {
	t := Txn{If: release.If, Then: append([]clientv3.Op{}, release.Then...)}
	t.Then = append(t.Then, clientv3.OpPut(l.Cancelled(h.UUID), tombstone, clientv3.WithLease(lease)))
	t.Else = []clientv3.Op{clientv3.OpGet(l.Cancelled(h.UUID)), readRecord(l, h.Lock)}
	return t.withConditions(compares, writes)
}

// HandOver is [Release] for a hold whose holder waited in the queue: it also deletes the ticket, for whose end the next
// waiter waits.
func HandOver(l protocol.Layout, h Hold) Txn {
	t := Release(l, h)
	t.Then = append(t.Then, leaveQueue(l, h.Lock, h.UUID)...)
	return t
}
