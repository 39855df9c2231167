package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Find reads the record of a lock and the note about the end of the hold with this uuid: it is that hold's record, or
// tells what became of it.
func Find(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: []clientv3.Op{read(l, lock), clientv3.OpGet(l.History(uuid))}}
}

// Beat is Alive of a background that only knows that the process lives: it is done only while the last word about the
// work is the one that was seen at this mod revision, 0 for none. Otherwise somebody with the same uuid said since then
// how the work goes, and when people are to be alerted, and what the background knows is older.
func Beat(l protocol.Layout, h Hold, alertAt, autoUnlockAt, alive string, seen int64) Txn {
	t := Alive(l, h, alertAt, autoUnlockAt, alive)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Field(h.Lock, metadata.FieldAlive)), "=", seen))
	return t
}

// Progress puts what Alive says of the work where the stored deadline is as late already, so that Alive put nothing. The
// alert moves forward, never back.
func Progress(l protocol.Layout, h Hold, alertAt, alive string) Txn {
	alert := l.Field(h.Lock, metadata.FieldAlertAt)
	return Txn{
		If: HeldBy(l, h),
		Then: []clientv3.Op{
			clientv3.OpPut(l.Field(h.Lock, metadata.FieldAlive), alive),
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(alert), "<", alertAt)},
				[]clientv3.Op{clientv3.OpPut(alert, alertAt)}, nil),
		},
		Else: []clientv3.Op{read(l, h.Lock)},
	}
}

// Deadlines is the half-open range of the keys of a record that a holder watches: its deadline, its uuid and what lies
// between them, which is written once. Word of the work is not among them, so a holder is not told of what it says
// itself.
func Deadlines(l protocol.Layout, lock string) (from, end string) {
	return l.Field(lock, metadata.FieldAutoUnlockAt), l.Field(lock, metadata.FieldUUID) + "\x00"
}

// Forbid keeps a late send of an acquisition that was committed once already from being committed again, after its hold
// was given back; and one of [AddTask], after the task was done and removed. It does not end the hold. The mark lives
// as long as the lease.
func Forbid(l protocol.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpPut(l.Cancelled(uuid), lock, clientv3.WithLease(lease))}}
}
