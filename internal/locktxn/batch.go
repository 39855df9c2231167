package locktxn

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// BatchLock is one of the locks of an [AcquireBatch].
type BatchLock struct {
	Lock      string
	UUID      string
	Fields    []metadata.Field
	CountedAt int64 // as in a [Claim]
	SkipQueue bool
	Tail      int64 // mod revision of the tail of an empty queue; 0 if there was none
}

// AcquireBatch takes all of the locks, or none, if the caller's own compares hold too, and does the caller's writes.
// Each lock has the same guards as when it is taken alone, so a late send can be committed only if none of them has
// been cancelled.
//
// Else it reads, in the order of the locks, what [Acquire] reads of each, and then what [FailedCompares] reads.
func AcquireBatch(l protocol.Layout, locks []BatchLock, compares []clientv3.Cmp, writes []clientv3.Op) Txn {
	var t Txn
	for _, p := range locks {
		claim := PlainClaim(p.Lock)
		claim.CountedAt = p.CountedAt
		one := Acquire(l, claim, p.UUID, p.Fields, p.SkipQueue || p.Tail != 0)
		if p.Tail != 0 && !p.SkipQueue {
			one.If = append(one.If, clientv3.Compare(clientv3.ModRevision(l.Tail(p.Lock)), "=", p.Tail))
			one.Then = append(one.Then, clientv3.OpDelete(l.Tail(p.Lock)))
		}
		t.If = append(t.If, one.If...)
		t.Then = append(t.Then, one.Then...)
		t.Else = append(t.Else, one.Else...)
	}
	return t.withConditions(compares, writes)
}

// withConditions returns t with the compares and writes of the caller. Else it reports for each compare whether it
// holds, in a nested transaction that reads the keys if it does not, see [FailedCompares].
func (t Txn) withConditions(compares []clientv3.Cmp, writes []clientv3.Op) Txn {
	t.If = append(t.If, compares...)
	t.Then = append(t.Then, writes...)
	for _, c := range compares {
		t.Else = append(t.Else, clientv3.OpTxn([]clientv3.Cmp{c}, nil, []clientv3.Op{readCompared(c)}))
	}
	return t
}

// readCompared reads the keys of a compare, or some of them if it has a range.
func readCompared(c clientv3.Cmp) clientv3.Op {
	const maxKeys = 10 // of a range
	opts := []clientv3.OpOption{clientv3.WithLimit(maxKeys)}
	if end := c.GetCompare().GetRangeEnd(); len(end) > 0 {
		opts = append(opts, clientv3.WithRange(string(end)))
	}
	return clientv3.OpGet(string(c.KeyBytes()), opts...)
}

// FailedCompares returns the caller's compares that did not hold when the transaction was refused, by their numbers,
// with their keys at that time. first is the number of operations before them.
func FailedCompares(r *clientv3.TxnResponse, first, compares int) map[int]*clientv3.GetResponse {
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

// SettleBatch ends the uncertainty of an [AcquireBatch] with an unanswered send: after its commit no late send can be
// committed. It reads of each lock what [AcquireBatch] does; the records show whether the acquisition holds the locks.
// Then it reads the endings of the holds: one may have begun and ended.
func SettleBatch(l protocol.Layout, locks []BatchLock, lease clientv3.LeaseID) Txn {
	first := locks[0]
	t := Txn{Then: AcquireBatch(l, locks, nil, nil).Else}
	for _, p := range locks {
		t.Then = append(t.Then, clientv3.OpGet(l.History(p.UUID)))
	}
	t.Then = append(t.Then, clientv3.OpPut(l.Cancelled(first.UUID), first.Lock, clientv3.WithLease(lease)))
	return t
}

// ReadQueueLengths is [ReadQueueLength] for several locks, in their order.
func ReadQueueLengths(l protocol.Layout, locks []BatchLock) Txn {
	var t Txn
	for _, p := range locks {
		t.Then = append(t.Then, ReadQueueLength(l, p.Lock).Then...)
	}
	return t
}
