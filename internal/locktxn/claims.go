package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ReadRecord reads the record of a lock, and nothing else.
func ReadRecord(l protocol.Layout, lock string) Txn { return Txn{Then: []clientv3.Op{read(l, lock)}} }

// RaiseClaim makes the claim of a move one of a later move, by new fields, if nobody has changed it since it was seen:
// the first of the fields had the mod revision seen then, 0 if it was part of the document.
func RaiseClaim(l protocol.Layout, h Hold, seen int64, fields []metadata.Field) Txn {
	t := Txn{If: []clientv3.Cmp{Guard(l, h), unchanged(l, h, fields[0].Name, seen)}}
	for _, f := range fields {
		t.Then = append(t.Then, clientv3.OpPut(l.Field(h.Lock, f.Name), f.Value))
	}
	return t
}

// RemoveClaim releases the lock from the claim of a move, if nobody has changed it since it was seen.
func RemoveClaim(l protocol.Layout, h Hold, attribute string, seen int64) Txn {
	t := HandOver(l, h)
	t.If = append(t.If, unchanged(l, h, attribute, seen))
	return t
}

func unchanged(l protocol.Layout, h Hold, field string, seen int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(l.Field(h.Lock, field)), "=", seen)
}
