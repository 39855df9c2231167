package locktxn

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Documents are keys below the prefix that belong to no lock, and that may be written in the transactions that take a
// lock and give it back. Only packages of this module can name some.
type Documents struct{ keys []string }

// NewDocuments returns the documents with these keys.
func NewDocuments(keys ...string) Documents { return Documents{keys} }

// Cover reports whether the operation is about one of the documents alone.
func (d Documents) Cover(op clientv3.Op) bool {
	return len(op.RangeBytes()) == 0 && slices.Contains(d.keys, string(op.KeyBytes()))
}
