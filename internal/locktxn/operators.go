package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// PutMark writes a document into the field of the hold h, replacing an earlier one. It expires with the lease. also are
// further puts, such as an operator's audit entry.
func PutMark(l protocol.Layout, h Hold, field, document string, lease clientv3.LeaseID, also ...clientv3.Op) Txn {
	put := clientv3.OpPut(l.Field(h.Lock, field), document, clientv3.WithLease(lease))
	return Txn{
		If:   HeldBy(l, h),
		Then: append([]clientv3.Op{put}, also...),
	}
}

// PutFinishRequestOnce writes a finish request of a client that waits. Unlike [PutMark], it does not replace an
// existing request to the hold. An asked key that is older than the hold is a leftover.
func PutFinishRequestOnce(l protocol.Layout, lock string, r metadata.FinishRequest) Txn {
	hold := Hold{Lock: lock, UUID: r.UUID, Token: r.Token}
	t := PutMark(l, hold, lockrecord.FieldAsked, protocol.Marshal(r), clientv3.NoLease)
	asked := clientv3.Compare(clientv3.ModRevision(l.Field(lock, lockrecord.FieldAsked)), "<", r.Token)
	t.If = append(t.If, asked)
	return t
}

// MoreTime is what an operator gives a hold. Record is the one that the operator saw.
type MoreTime struct {
	Record                *metadata.Record
	AlertAt, AutoUnlockAt string // the new deadlines
	Document              string // of the field that says who gave the time
	Audit                 clientv3.Op
}

// GiveMoreTime moves both deadlines of a hold later, if its auto-unlock has not moved since it was shown. The alert may
// have moved alone; it never moves back.
func GiveMoreTime(l protocol.Layout, m MoreTime) Txn {
	lock := m.Record.Name
	deadline := l.Field(lock, lockrecord.FieldAutoUnlockAt)
	return Txn{
		If: append(HeldBy(l, Hold{Lock: lock, UUID: m.Record.UUID, Token: m.Record.Token}),
			clientv3.Compare(clientv3.ModRevision(deadline), "=", m.Record.DeadlineRevision),
			clientv3.Compare(clientv3.Value(deadline), "<", m.AutoUnlockAt)),
		Then: []clientv3.Op{
			putLater(l.Field(lock, lockrecord.FieldAlertAt), m.AlertAt),
			clientv3.OpPut(deadline, m.AutoUnlockAt),
			clientv3.OpPut(l.Field(lock, lockrecord.FieldExtended), m.Document),
			m.Audit,
		},
	}
}

// WithdrawAcknowledgement deletes the acknowledgement of the hold that it names, if it is still the one that was shown.
func WithdrawAcknowledgement(l protocol.Layout, lock string, a *metadata.Acknowledgement, audit clientv3.Op) Txn {
	key := l.Field(lock, lockrecord.FieldAcknowledged)
	return Txn{
		If: append(HeldBy(l, Hold{Lock: lock, UUID: a.UUID, Token: a.Token}),
			clientv3.Compare(clientv3.ModRevision(key), "=", a.Revision)),
		Then: []clientv3.Op{clientv3.OpDelete(key), audit},
	}
}

// PutProof writes a witness's proof that the holder of a hold has ended, replacing a suspicion. The statement lives as
// long as the lease. It is put only if that hold stands, has no statement since it was taken, and has not been detached
// from its process. Else it reads the uuid key and then the statement: an earlier one, perhaps from an earlier send, is
// as good.
func PutProof(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) Txn {
	t := putStatement(l, s)
	t.Then = []clientv3.Op{
		clientv3.OpPut(l.Death(s.UUID), protocol.Marshal(s), clientv3.WithLease(lease)),
		clientv3.OpDelete(l.Suspicion(s.UUID)),
	}
	return t
}

// PutSuspicion writes a witness's suspicion, replacing an earlier one, under the same conditions as [PutProof].
func PutSuspicion(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) Txn {
	t := putStatement(l, s)
	t.Then = []clientv3.Op{clientv3.OpPut(l.Suspicion(s.UUID), protocol.Marshal(s), clientv3.WithLease(lease))}
	return t
}

// putStatement returns the conditions of [PutProof] and [PutSuspicion]. A detached key that is older than the hold is a
// leftover, and an older statement is about an earlier hold with the same uuid: a late send of the same acquisition
// took the lock again.
func putStatement(l protocol.Layout, s metadata.Statement) Txn {
	hold := Hold{Lock: s.Name, UUID: s.UUID, Token: s.Token}
	detached := l.Field(s.Name, lockrecord.FieldDetached)
	return Txn{
		If: append(HeldBy(l, hold), clientv3.Compare(clientv3.ModRevision(l.Death(s.UUID)), "<", s.Token),
			clientv3.Compare(clientv3.ModRevision(detached), "<", s.Token)),
		Else: []clientv3.Op{
			clientv3.OpGet(l.Field(s.Name, lockrecord.FieldUUID)),
			clientv3.OpGet(l.Death(s.UUID)),
		},
	}
}

// DeleteSuspicion deletes the suspicion about a hold.
func DeleteSuspicion(l protocol.Layout, uuid string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Suspicion(uuid))}}
}

// CheckWitnessRights is a transaction that etcd refuses to clients without the rights of a witness. It changes nothing:
// the uuid must be that of no hold.
func CheckWitnessRights(l protocol.Layout, uuid string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Death(uuid)), clientv3.OpDelete(l.Suspicion(uuid))}}
}
