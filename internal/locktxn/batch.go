package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// BatchLock is one of the locks of a [Batch].
type BatchLock struct {
	Lock   string
	UUID   string
	Fields []metadata.Field
	Barge  bool
	Tail   int64 // mod revision of the tail of an empty queue; 0 if there was none
}

// Batch takes all of the locks, or none, if the caller's own compares hold too, and does the caller's writes. Each lock
// has the same guards as when it is taken alone, so a late send can be committed only if none of them has been
// cancelled.
//
// Else it reads, in the order of the locks, the record and the delay of each, and then what [Failed] reads.
func Batch(l protocol.Layout, locks []BatchLock, only []clientv3.Cmp, with []clientv3.Op) Txn {
	var t Txn
	for _, p := range locks {
		one := take(l, Sole(p.Lock), p.UUID, p.Fields)
		switch {
		case p.Barge:
		case p.Tail == 0:
			one.If = append(one.If, absent(l.Tail(p.Lock)))
		default:
			one.If = append(one.If, clientv3.Compare(clientv3.ModRevision(l.Tail(p.Lock)), "=", p.Tail))
			one.Then = append(one.Then, clientv3.OpDelete(l.Tail(p.Lock)))
		}
		t.If = append(t.If, one.If...)
		t.Then = append(t.Then, one.Then...)
		t.Else = append(t.Else, one.Else...)
	}
	return t.on(only, with)
}

// on makes t depend on the caller's compares and adds the caller's writes. Else it reports for each compare whether it
// holds, in a nested transaction that reads the keys if it does not.
func (t Txn) on(only []clientv3.Cmp, with []clientv3.Op) Txn {
	t.If = append(t.If, only...)
	t.Then = append(t.Then, with...)
	for _, c := range only {
		t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{c}, nil, []clientv3.Op{readCompared(c)}))
	}
	return t
}

// readCompared reads some of the keys of a compare.
func readCompared(c clientv3.Cmp) clientv3.Op {
	const enough = 10 // of a range
	opts := []clientv3.OpOption{clientv3.WithLimit(enough)}
	if end := c.GetCompare().GetRangeEnd(); len(end) > 0 {
		opts = append(opts, clientv3.WithRange(string(end)))
	}
	return clientv3.OpGet(string(c.KeyBytes()), opts...)
}

// Failed returns which of the caller's compares did not hold when the transaction was refused, with their keys at that
// time. first is the number of operations before them.
func Failed(r *clientv3.TxnResponse, first, compares int) map[int]*clientv3.GetResponse {
	failed := map[int]*clientv3.GetResponse{}
	for i := range compares {
		if first+i >= len(r.Responses) {
			break
		}
		one := r.Responses[first+i].GetResponseTxn()
		if one == nil || one.Succeeded || len(one.Responses) == 0 {
			continue
		}
		failed[i] = (*clientv3.GetResponse)(one.Responses[0].GetResponseRange())
	}
	return failed
}

// Settle settles an acquisition with an unanswered send: after its commit no late send can be committed. It reads the
// record and the delay of each lock as [Batch] does; the records show whether the acquisition holds the locks. Then it
// reads the endings of the holds: one may have begun and ended.
func Settle(l protocol.Layout, locks []BatchLock, lease clientv3.LeaseID) Txn {
	first := locks[0]
	t := Txn{Then: make([]clientv3.Op, 0, 3*len(locks)+1)}
	for _, p := range locks {
		t.Then = append(t.Then, read(l, p.Lock), clientv3.OpGet(l.Delay(p.Lock)))
	}
	for _, p := range locks {
		t.Then = append(t.Then, clientv3.OpGet(l.History(p.UUID)))
	}
	t.Then = append(t.Then, clientv3.OpPut(l.Cancelled(first.UUID), first.Lock, clientv3.WithLease(lease)))
	return t
}

// Queues is [QueueLength] of each lock.
func Queues(l protocol.Layout, locks []BatchLock) Txn {
	var t Txn
	for _, p := range locks {
		t.Then = append(t.Then, QueueLength(l, p.Lock).Then...)
	}
	return t
}
