package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Removal is the removal of a hold by an unlocker or an operator. Its record is the one that was judged, or shown to
// the operator.
type Removal struct {
	lockrecord.Removal
	// Ranges hold the record's keys. They are needed only if Record.HasForeignKeys: then exactly these ranges are
	// deleted instead of the whole.
	Ranges       []protocol.Range
	HistoryLease clientv3.LeaseID // of the history key
	Audit        *clientv3.Op     // writes the operator's action; nil for an unlocker

	DelayLease clientv3.LeaseID // of the delay, if one follows

	ending string // value of the history key, once it was computed
}

// HasDelay reports whether a lock delay follows the removal. There is none after a holder that is proven to have ended.
func (r *Removal) HasDelay() bool {
	return r.Delay > 0 && r.Record.Token != 0 && r.Ending.Cause != metadata.EndingAbandoned
}

// AutoUnlock removes the record if it is still the one that was judged: same acquisition, same deadline.
func AutoUnlock(l protocol.Layout, r *Removal) Txn {
	t := ForceUnlock(l, r)
	deadline := l.Field(r.Record.Name, lockrecord.FieldAutoUnlockAt)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(deadline), "=", r.Record.DeadlineRevision))
	return t
}

// RemoveAbandoned removes the record if it is still the one that was judged, and the proof that its holder has ended
// still stands: the holder has not extended since, and the witness has not withdrawn its statement.
func RemoveAbandoned(l protocol.Layout, r *Removal) Txn {
	t := AutoUnlock(l, r)
	proof := int64(-1) // of no key
	if r.Record.Death != nil {
		proof = r.Record.Death.Revision
	}
	// [Alive] may write the alive key without moving the deadline.
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Death(r.Record.UUID)), "=", proof),
		clientv3.Compare(clientv3.ModRevision(l.Field(r.Record.Name, lockrecord.FieldAlive)), "<", proof))
	return t
}

// ForceUnlock removes the record if it is still held by the acquisition that the operator saw, whatever its deadlines;
// with IfUnchanged only if no key of the record was written since.
//
// Else it reads the record and then the history key: the ending there says whether an earlier send of this very
// transaction did it.
func ForceUnlock(l protocol.Layout, r *Removal) Txn {
	t := ForceUnlockUnrecorded(l, r)
	if r.Record.Token != 0 { // without its uuid key nobody held the lock, so no hold ends
		history := l.History(r.Record.HistoryID())
		t.Then = append(t.Then, clientv3.OpPut(history, r.History(), clientv3.WithLease(r.HistoryLease)))
		t.Else = append(t.Else, clientv3.OpGet(history))
		if r.HasDelay() {
			delay := protocol.MarshalDelay(lockrecord.NewDelay(r.Removal))
			t.Then = append(t.Then, clientv3.OpPut(l.Delay(r.Record.Name), delay, clientv3.WithLease(r.DelayLease)))
		}
	}
	if r.Audit != nil {
		t.Then = append(t.Then, *r.Audit)
	}
	return t
}

// ForceUnlockUnrecorded is [ForceUnlock] without history, audit and lock delay, for an etcd that is out of space.
func ForceUnlockUnrecorded(l protocol.Layout, r *Removal) Txn {
	key := l.Field(r.Record.Name, lockrecord.FieldUUID)
	t := Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", r.Record.Token)},
		Else: []clientv3.Op{readRecord(l, r.Record.Name)},
	}
	if metadata.IsUUID(r.Record.UUID) { // the next in the queue watches the holder's ticket
		t.Then = append(t.Then, clientv3.OpDelete(l.Ticket(r.Record.Name, r.Record.UUID)))
	}
	if r.IfUnchanged {
		written := clientv3.ModRevision(l.Record(r.Record.Name))
		t.If = append(t.If, clientv3.Compare(written, "<", r.Record.Revision+1).WithPrefix())
	}
	if !r.Record.HasForeignKeys() {
		t.Then = append(t.Then, deleteRecord(l, r.Record.Name))
		return t
	}
	for _, keys := range r.Ranges {
		t.Then = append(t.Then, clientv3.OpDelete(keys.From, clientv3.WithRange(keys.To)))
	}
	return t
}

// ReadRemoval reads the keys that show whether a removal was done: the uuid key, how many keys the record has, and the
// history key.
func ReadRemoval(l protocol.Layout, r *metadata.Record) Txn {
	return Txn{Then: []clientv3.Op{
		clientv3.OpGet(l.Field(r.Name, lockrecord.FieldUUID)),
		clientv3.OpGet(l.Record(r.Name), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(l.History(r.HistoryID())),
	}}
}

// EndDelay deletes a lock delay that was shown to an operator, seen at this mod revision. also are further puts, such
// as the operator's audit entry. Else it reads the delay, if there is another one.
func EndDelay(l protocol.Layout, lock string, revision int64, also ...clientv3.Op) Txn {
	key := l.Delay(lock)
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		Then: append([]clientv3.Op{clientv3.OpDelete(key)}, also...),
		Else: []clientv3.Op{clientv3.OpGet(key)},
	}
}

// History returns the value of the history key, which says who ended the hold. It leaves out attributes and progress if
// they would exceed the limit of a record, so that no client can make its own removal too large for etcd.
func (r *Removal) History() string {
	if r.ending == "" {
		r.ending = protocol.Marshal(r.Ending)
	}
	if len(r.ending) > lockrecord.MaxRecordBytes {
		short := r.Ending
		short.Attributes = nil
		short.Progress = ""
		r.ending = protocol.Marshal(short)
	}
	return r.ending
}
