package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Find reads the record of a lock and the ending of the hold with this uuid: either it is that hold's record, or the
// ending says what became of it.
func Find(l protocol.Layout, lock, uuid string) Txn {
	return Txn{Then: []clientv3.Op{read(l, lock), clientv3.OpGet(l.History(uuid))}}
}

// Beat is [Alive] of a background task that only knows that the process lives. It is done only while the last progress
// report is the one seen at this mod revision, 0 for none. Otherwise somebody with the same uuid has reported progress
// since, and what the background task knows is older.
func Beat(l protocol.Layout, h Hold, alertAt, autoUnlockAt, alive string, seen int64) Txn {
	t := Alive(l, h, alertAt, autoUnlockAt, alive)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Field(h.Lock, metadata.FieldAlive)), "=", seen))
	return t
}

// Watched is the half-open range of the keys of a record that a holder watches: from a request to its uuid, with its
// deadline, extensions, and what lies between them, which is written once. Progress is not among them, so a holder is
// not notified of its own reports.
func Watched(l protocol.Layout, lock string) (from, end string) {
	return l.Field(lock, metadata.FieldAsked), l.Field(lock, metadata.FieldUUID) + "\x00"
}

// Forbid puts a tombstone without ending the hold. It keeps a late send of an acquisition that was committed once from
// being committed again after its hold was released, and one of [AddTask] after the task was done and removed. The
// tombstone lives as long as the lease.
func Forbid(l protocol.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpPut(l.Cancelled(uuid), lock, clientv3.WithLease(lease))}}
}
