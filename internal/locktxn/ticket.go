package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// RemoveTicket takes a waiter out of the queue, if its ticket is still the one that was seen. There is no put in any
// branch: a tail that names the ticket stays, and keeps newcomers behind the queue until its waiter, if it lives, puts
// it back, or its lease ends.
func RemoveTicket(l protocol.Layout, w metadata.Waiter) Txn {
	key := l.Ticket(w.Lock, w.ID)
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", w.Revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	}
}
