package locktxn

import (
	"cmp"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// ReadTasks reads at most limit tasks of a set, beginning with from, and the keys of the held locks of all tasks of the
// set, at the same revision.
func ReadTasks(l protocol.Layout, set, from string, limit int64) Txn {
	all := l.Tasks(set)
	return Txn{Then: []clientv3.Op{
		clientv3.OpGet(cmp.Or(from, all), clientv3.WithRange(protocol.End(all)), clientv3.WithLimit(limit)),
		clientv3.OpGet(l.TaskLocks(set), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	}}
}

// ReadTask reads one task and the record of its lock.
func ReadTask(l protocol.Layout, set, task string) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpGet(l.Task(set, task)), readRecord(l, protocol.TaskLock(set, task))}}
}

// AddTask adds a task if there is none of that name, unless this attempt has a tombstone, see [PutTombstone]. Else it
// reads the existing task.
func AddTask(l protocol.Layout, set, task, attempt, value string) Txn {
	key := l.Task(set, task)
	return Txn{
		If:   []clientv3.Cmp{absent(key), absent(l.Cancelled(attempt))},
		Then: []clientv3.Op{clientv3.OpPut(key, value)},
		Else: []clientv3.Op{clientv3.OpGet(key)},
	}
}

// ChangeTask writes a task, or removes it if the value is empty, if it is still the one that was seen and no worker
// holds it. Else it reads what [ReadTask] reads.
func ChangeTask(l protocol.Layout, set, task string, revision int64, value string) Txn {
	key := l.Task(set, task)
	change := clientv3.OpDelete(key)
	if value != "" {
		change = clientv3.OpPut(key, value)
	}
	return Txn{
		If: []clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(key), "=", revision),
			absent(l.Field(protocol.TaskLock(set, task), lockrecord.FieldUUID)),
		},
		Then: []clientv3.Op{change},
		Else: ReadTask(l, set, task).Then,
	}
}

// SaveTask writes the task of a worker that still holds it, if it is still the one that was seen. Else it reads what
// [ReadTask] reads.
func SaveTask(l protocol.Layout, set, task string, guard clientv3.Cmp, revision int64, value string) Txn {
	key := l.Task(set, task)
	return Txn{
		If:   []clientv3.Cmp{guard, clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		Then: []clientv3.Op{clientv3.OpPut(key, value)},
		Else: ReadTask(l, set, task).Then,
	}
}

// ReadPeriod reads the last period of the job under a lock, and the running unlockers, whose clocks are compared.
func ReadPeriod(l protocol.Layout, lock string) Txn {
	return Txn{Then: append([]clientv3.Op{clientv3.OpGet(l.Period(lock))}, ReadUnlockers(l).Then...)}
}

// Documents are keys below the prefix that belong to no lock and may be written in the transactions that take and
// release a lock. Only packages of this module can name them.
type Documents struct{ keys []string }

// NewDocuments returns the documents with these keys.
func NewDocuments(keys ...string) Documents { return Documents{keys} }

// Cover reports whether the operation concerns only one of the documents.
func (d Documents) Cover(op clientv3.Op) bool {
	return len(op.RangeBytes()) == 0 && slices.Contains(d.keys, string(op.KeyBytes()))
}
