// Package locktxn builds the transactions of the lock protocol as data: what is compared, what is written, what is read
// when a compare fails. They are in one package because the safety of every lock rests on these compares: each one is
// there because the checked model breaks without it (docs/protocol.md).
//
// An error of a commit says nothing about its outcome, and neither does a failed compare alone: etcd's client may have
// sent the transaction twice. So the Else branches read the record, and the caller compares the uuid that it finds.
package locktxn

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Txn is one transaction.
type Txn struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Only names the record that the transaction alone is about, if it may share a request with transactions about
	// others: what it compares and writes belongs to that record, or to one attempt.
	Only string
}

// Commit sends the transaction.
func (t Txn) Commit(ctx context.Context, kv clientv3.KV) (*clientv3.TxnResponse, error) {
	return kv.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
}

// Nest makes one transaction that runs each of ts with its own compares: one that fails does not stop the others.
func Nest(ts []Txn) Txn {
	ops := make([]clientv3.Op, len(ts))
	for i, t := range ts {
		ops[i] = clientv3.OpTxn(t.If, t.Then, t.Else)
	}
	return Txn{Then: ops}
}

// Hold names one hold: a lock and the acquisition that holds it. UUID and Token are compared together, so that a late
// transaction of an older hold never touches a newer one.
type Hold struct {
	Lock  string
	UUID  string
	Token int64 // create revision of the uuid key
}

// Guard is the compare that holds as long as h does, for the holder's own writes.
func Guard(l protocol.Layout, h Hold) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.Field(h.Lock, metadata.FieldUUID)), "=", h.Token)
}

// HeldBy are the compares that hold as long as h does.
func HeldBy(l protocol.Layout, h Hold) []clientv3.Cmp {
	key := l.Field(h.Lock, metadata.FieldUUID)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(key), "=", h.UUID),
		clientv3.Compare(clientv3.CreateRevision(key), "=", h.Token),
	}
}

// Alive writes what the holder says of its work, and moves the deadlines forward, never back: the time format makes the
// order of bytes the order of times. Where the stored deadline is as late already, the alert still moves forward, and
// [AsLate] has what was read. Else the hold is lost, and the record says to whom.
func Alive(l protocol.Layout, h Hold, alertAt, autoUnlockAt, alive string) Txn {
	alert := l.Field(h.Lock, metadata.FieldAlertAt)
	deadline := l.Field(h.Lock, metadata.FieldAutoUnlockAt)
	return Txn{
		If: HeldBy(l, h),
		Then: []clientv3.Op{
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(deadline), "<", autoUnlockAt)},
				[]clientv3.Op{clientv3.OpPut(alert, alertAt), clientv3.OpPut(deadline, autoUnlockAt)},
				// It is read before alive is written: another process with the uuid may have reported progress.
				[]clientv3.Op{readOthers(l, h.Lock), forward(alert, alertAt)}),
			clientv3.OpPut(l.Field(h.Lock, metadata.FieldAlive), alive),
		},
		Else: []clientv3.Op{read(l, h.Lock)},
	}
}

// AsLate returns what an [Alive] that was done read of the record, as [ReadHold] does, because the stored deadline was
// as late already. Otherwise it moved the deadlines, and moved is true.
func AsLate(r *clientv3.TxnResponse) (others *clientv3.GetResponse, moved bool) {
	if len(r.Responses) == 0 || r.Responses[0].GetResponseTxn() == nil {
		return &clientv3.GetResponse{}, false // not from etcd
	}
	deadlines := (*clientv3.TxnResponse)(r.Responses[0].GetResponseTxn())
	if deadlines.Succeeded {
		return nil, true
	}
	return Keys(deadlines, 0), false
}

// Release releases the lock. There is no put in any branch, so it works while etcd is out of space. It reads nothing: a
// caller that must know why the lock was no longer held sends [ReadHold], and the others need not pay for the branch.
func Release(l protocol.Layout, h Hold) Txn {
	return Txn{
		If:   HeldBy(l, h),
		Then: []clientv3.Op{remove(l, h.Lock)},
	}
}

// ReleaseIndeterminate is [Release] of a hold of which another send of the acquisition is still unanswered: after its
// commit that send cannot be committed either, and has no ticket. queue is the lock in whose queue it may be. The
// tombstone lives as long as the lease. Else nothing is released, and the rest is done all the same.
func ReleaseIndeterminate(l protocol.Layout, queue string, h Hold, lease clientv3.LeaseID) Txn {
	settle := append(leave(l, queue, h.UUID), clientv3.OpPut(l.Cancelled(h.UUID), queue, clientv3.WithLease(lease)))
	t := Release(l, h)
	t.Then = append(t.Then, settle...)
	t.Else = settle
	return t
}

// ReadHold reads whether h is held, and what others may have written into its record: the keys from its alert to an
// extension, with its deadline and a request between them. Else it reads the ending, if there is one, and the record.
func ReadHold(l protocol.Layout, h Hold) Txn {
	return Txn{
		If:   HeldBy(l, h),
		Then: []clientv3.Op{readOthers(l, h.Lock)},
		Else: []clientv3.Op{clientv3.OpGet(l.History(h.UUID)), read(l, h.Lock)},
	}
}

// readOthers reads the keys of a record that change while it is held.
func readOthers(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Field(lock, metadata.FieldAlertAt),
		clientv3.WithRange(l.Field(lock, metadata.FieldExtended)+"\x00"))
}

// Removal asks to end a hold for its holder. Its record is the one that was judged, or shown to the operator.
type Removal struct {
	metadata.Removal
	// Ranges hold the record's keys. Only needed if Record.Foreign reports that other keys lie in its range: then
	// exactly these ranges are deleted instead of all of it.
	Ranges []Range
	Lease  clientv3.LeaseID // of the history key
	Audit  *clientv3.Op     // the operator's action; nil for the unlocker

	DelayLease clientv3.LeaseID // of the delay, if there is to be one

	ending string // value of the history key, once it was asked for
}

// Delayed reports whether a lock delay follows. None follows the hold of a holder that is proven to have ended.
func (r *Removal) Delayed() bool {
	return r.Delay > 0 && r.Record.Token != 0 && r.Ending.Ended != metadata.EndedAbandoned
}

// Range is the keys from From on and before To.
type Range struct{ From, To string }

// AutoUnlock removes the record if it is still the one that was judged: same acquisition, same deadline.
func AutoUnlock(l protocol.Layout, r *Removal) Txn {
	t := ForceUnlock(l, r)
	deadline := l.Field(r.Record.Name, metadata.FieldAutoUnlockAt)
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(deadline), "=", r.Record.DeadlineRevision))
	return t
}

// RemoveAbandoned removes the record if it is still the one that was judged, and the proof that its holder has ended
// still stands as it was judged: a holder that extended, and a witness that took its statement back, both count.
func RemoveAbandoned(l protocol.Layout, r *Removal) Txn {
	t := AutoUnlock(l, r)
	proof := int64(-1) // of no key
	if r.Record.Death != nil {
		proof = r.Record.Death.Revision
	}
	// An [Alive] may write alive without a deadline.
	t.If = append(t.If, clientv3.Compare(clientv3.ModRevision(l.Death(r.Record.UUID)), "=", proof),
		clientv3.Compare(clientv3.ModRevision(l.Field(r.Record.Name, metadata.FieldAlive)), "<", proof))
	return t
}

// ForceUnlock removes the record if it is still held by the acquisition that the operator saw, whatever its deadlines.
// Else it reads the record and then the history key: the ending there says whether an earlier send of this very
// transaction did it.
func ForceUnlock(l protocol.Layout, r *Removal) Txn {
	t := ForceUnlockSilently(l, r)
	if r.Record.Token != 0 { // without its uuid key nobody held the lock, so no hold ends
		history := l.History(r.Record.HistoryID())
		t.Then = append(t.Then, clientv3.OpPut(history, r.History(), clientv3.WithLease(r.Lease)))
		t.Else = append(t.Else, clientv3.OpGet(history))
		if r.Delayed() {
			delay := protocol.MarshalDelay(metadata.NewDelay(r.Removal))
			t.Then = append(t.Then, clientv3.OpPut(l.Delay(r.Record.Name), delay, clientv3.WithLease(r.DelayLease)))
		}
	}
	if r.Audit != nil {
		t.Then = append(t.Then, *r.Audit)
	}
	return t
}

// ForceUnlockSilently is [ForceUnlock] without history and audit: the way out when etcd is out of space.
func ForceUnlockSilently(l protocol.Layout, r *Removal) Txn {
	key := l.Field(r.Record.Name, metadata.FieldUUID)
	t := Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", r.Record.Token)},
		Else: []clientv3.Op{read(l, r.Record.Name)},
	}
	if metadata.IsUUID(r.Record.UUID) { // the next in the queue watches the holder's ticket
		t.Then = append(t.Then, clientv3.OpDelete(l.Ticket(r.Record.Name, r.Record.UUID)))
	}
	if !r.Record.Foreign() {
		t.Then = append(t.Then, remove(l, r.Record.Name))
		return t
	}
	for _, keys := range r.Ranges {
		t.Then = append(t.Then, clientv3.OpDelete(keys.From, clientv3.WithRange(keys.To)))
	}
	return t
}

// ReadRemoval reads what shows whether a removal was done: the uuid key, how many keys the record has, and the history
// key.
func ReadRemoval(l protocol.Layout, r *metadata.Record) Txn {
	return Txn{Then: []clientv3.Op{
		clientv3.OpGet(l.Field(r.Name, metadata.FieldUUID)),
		clientv3.OpGet(l.Record(r.Name), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(l.History(r.HistoryID())),
	}}
}

// EndDelay ends a delay that was shown to an operator, seen at this mod revision. also are puts that go with it, such
// as the operator's audit entry. Else it reads the delay, if there is another one.
func EndDelay(l protocol.Layout, lock string, revision int64, also ...clientv3.Op) Txn {
	key := l.Delay(lock)
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		Then: append([]clientv3.Op{clientv3.OpDelete(key)}, also...),
		Else: []clientv3.Op{clientv3.OpGet(key)},
	}
}

// History is the value of the history key, which says who ended the hold. It leaves out what would make it larger than
// a record may be, so that nothing that a client writes can make its own removal too large for etcd.
func (r *Removal) History() string {
	if r.ending == "" {
		r.ending = protocol.Marshal(r.Ending)
	}
	if len(r.ending) > metadata.MaxRecordBytes {
		short := r.Ending
		short.Attributes = nil
		short.Progress = ""
		r.ending = protocol.Marshal(short)
	}
	return r.ending
}

// Keys is what the operation with this number read.
func Keys(r *clientv3.TxnResponse, op int) *clientv3.GetResponse {
	if op >= len(r.Responses) || r.Responses[op].GetResponseRange() == nil {
		return &clientv3.GetResponse{} // not from etcd
	}
	return (*clientv3.GetResponse)(r.Responses[op].GetResponseRange())
}

// Fields takes the keys of a record out of a range answer.
func Fields(l protocol.Layout, resp *clientv3.GetResponse) []metadata.Field {
	fields := make([]metadata.Field, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if key := l.Parse(string(kv.Key)); key.Kind == protocol.KindField {
			fields = append(fields, metadata.Field{
				Name: key.ID, Value: string(kv.Value), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
				Version: kv.Version,
			})
		}
	}
	return fields
}

// forward puts a time if the one that is stored is earlier.
func forward(key, to string) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "<", to)},
		[]clientv3.Op{clientv3.OpPut(key, to)}, nil)
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

func read(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Record(lock), clientv3.WithPrefix())
}

func remove(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpDelete(l.Record(lock), clientv3.WithPrefix())
}

// KV is a key as etcd answers it.
func KV(kv *mvccpb.KeyValue) protocol.KV {
	return protocol.KV{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Lease: kv.Lease}
}
