package locktxn

import clientv3 "go.etcd.io/etcd/client/v3"

// Forget deletes a document that belongs to no lock, if it is still the one that was seen at this mod revision.
func Forget(key string, revision int64) Txn {
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	}
}
