package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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

// Detach says that the hold outlives the process that its record names, and takes back what witnesses said of that
// process: from then on none can state its death. Else it reads the ending and the record, as [Ask] does.
func Detach(l protocol.Layout, h Hold) Txn {
	return Txn{
		If: HeldBy(l, h),
		Then: []clientv3.Op{
			clientv3.OpPut(l.Field(h.Lock, metadata.FieldDetached), "true"),
			clientv3.OpDelete(l.Death(h.UUID)),
			clientv3.OpDelete(l.Suspicion(h.UUID)),
		},
		Else: []clientv3.Op{clientv3.OpGet(l.History(h.UUID)), read(l, h.Lock)},
	}
}
