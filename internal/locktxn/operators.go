package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Mark puts a document into the field of the hold h, in the place of an earlier one, for as long as the lease. also are
// puts that go with it, such as an operator's audit entry.
func Mark(l protocol.Layout, h Hold, field, document string, lease clientv3.LeaseID, also ...clientv3.Op) Txn {
	put := clientv3.OpPut(l.Field(h.Lock, field), document, clientv3.WithLease(lease))
	return Txn{
		If:   HeldBy(l, h),
		Then: append([]clientv3.Op{put}, also...),
	}
}

// AskOnce is a [Mark] of a client that waits: it replaces no request that the hold has already. A key asked that is
// older than the hold is a leftover.
func AskOnce(l protocol.Layout, lock string, r metadata.Request) Txn {
	hold := Hold{Lock: lock, UUID: r.UUID, Token: r.Token}
	t := Mark(l, hold, metadata.FieldAsked, protocol.Marshal(r), clientv3.NoLease)
	asked := clientv3.Compare(clientv3.ModRevision(l.Field(lock, metadata.FieldAsked)), "<", r.Token)
	t.If = append(t.If, asked)
	return t
}

// Extension gives a hold more time. Its record is the one that was shown to the operator.
type Extension struct {
	Record                *metadata.Record
	AlertAt, AutoUnlockAt string // the new deadlines
	By                    string // the document that says who gave the time
	Audit                 clientv3.Op
}

// Extend moves both deadlines of a hold forward, if nobody has moved its auto-unlock since it was shown. The alert may
// have moved alone, and never moves back.
func Extend(l protocol.Layout, e Extension) Txn {
	lock := e.Record.Name
	deadline := l.Field(lock, metadata.FieldAutoUnlockAt)
	return Txn{
		If: append(HeldBy(l, Hold{Lock: lock, UUID: e.Record.UUID, Token: e.Record.Token}),
			clientv3.Compare(clientv3.ModRevision(deadline), "=", e.Record.DeadlineRevision),
			clientv3.Compare(clientv3.Value(deadline), "<", e.AutoUnlockAt)),
		Then: []clientv3.Op{
			forward(l.Field(lock, metadata.FieldAlertAt), e.AlertAt),
			clientv3.OpPut(deadline, e.AutoUnlockAt),
			clientv3.OpPut(l.Field(lock, metadata.FieldExtended), e.By),
			e.Audit,
		},
	}
}

// WithdrawAcknowledgement deletes the acknowledgement of the hold that it names, if it is still the one that was shown.
func WithdrawAcknowledgement(l protocol.Layout, lock string, a *metadata.Acknowledgement, audit clientv3.Op) Txn {
	key := l.Field(lock, metadata.FieldAcknowledged)
	return Txn{
		If: append(HeldBy(l, Hold{Lock: lock, UUID: a.UUID, Token: a.Token}),
			clientv3.Compare(clientv3.ModRevision(key), "=", a.Revision)),
		Then: []clientv3.Op{clientv3.OpDelete(key), audit},
	}
}

// ReadAction reads whether the action with this audit key was recorded, which happens together with the action, and
// then the record of its lock.
func ReadAction(l protocol.Layout, audit, lock string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpGet(audit, clientv3.WithCountOnly()), read(l, lock)}}
}

// State puts the proof that the holder of a hold has ended, in the place of a suspicion. The statement lives as long as
// the lease. It is only put while that hold stands, without a statement since it was taken, and has not been detached
// from its process. Else it reads the uuid key and then the statement: an earlier one, perhaps of an earlier send, is
// as good.
func State(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) Txn {
	t := witness(l, s)
	t.Then = []clientv3.Op{
		clientv3.OpPut(l.Death(s.UUID), protocol.Marshal(s), clientv3.WithLease(lease)),
		clientv3.OpDelete(l.Suspicion(s.UUID)),
	}
	return t
}

// Suspect puts a suspicion, in the place of an earlier one, under the same conditions as [State].
func Suspect(l protocol.Layout, s metadata.Statement, lease clientv3.LeaseID) Txn {
	t := witness(l, s)
	t.Then = []clientv3.Op{clientv3.OpPut(l.Suspicion(s.UUID), protocol.Marshal(s), clientv3.WithLease(lease))}
	return t
}

// witness is what State and Suspect have in common. A key detached that is older than the hold is a leftover, and a
// statement that is older is about an earlier hold with its uuid: a late send of the same acquire took the lock again.
func witness(l protocol.Layout, s metadata.Statement) Txn {
	hold := Hold{Lock: s.Lock, UUID: s.UUID, Token: s.Token}
	detached := l.Field(s.Lock, metadata.FieldDetached)
	return Txn{
		If: append(HeldBy(l, hold), clientv3.Compare(clientv3.ModRevision(l.Death(s.UUID)), "<", s.Token),
			clientv3.Compare(clientv3.ModRevision(detached), "<", s.Token)),
		Else: []clientv3.Op{
			clientv3.OpGet(l.Field(s.Lock, metadata.FieldUUID)),
			clientv3.OpGet(l.Death(s.UUID)),
		},
	}
}

// Dispel takes a suspicion back.
func Dispel(l protocol.Layout, uuid string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Suspicion(uuid))}}
}

// ProveWitness changes nothing; etcd refuses it to clients without the rights of a witness. No hold has this uuid.
func ProveWitness(l protocol.Layout, uuid string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Death(uuid)), clientv3.OpDelete(l.Suspicion(uuid))}}
}
