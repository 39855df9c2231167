package gateway

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The bodies in kinds.json are the transactions of the Go client, or are put together from their parts.
func TestBodiesOfKinds(t *testing.T) {
	t.Parallel()
	for _, c := range readFile(t, "kinds.json", 19, 32).Transactions {
		t.Run(c.Step+": "+c.About, func(t *testing.T) {
			sameBody(t, c.Body, sent(t, kindFromGo(t, c.Step, c.Input)))
		})
	}
}

// kindFromGo builds a case's transaction with the functions that the Go client uses.
func kindFromGo(t *testing.T, step string, i input) locktxn.Txn {
	t.Helper()
	l := protocol.DefaultLayout()
	claim := locktxn.Claim{Lock: i.Lock, Record: i.Lock, Shares: true, Counts: i.Kind != metadata.HoldsShared,
		Counted: number(t, i.Counted)}
	if i.Share > 0 {
		claim.Record = metadata.ShareName(i.Lock, i.Share)
	}
	lease := clientv3.LeaseID(number(t, i.Lease))
	position := locktxn.Position{Lock: i.Lock, UUID: i.UUID, Revision: number(t, i.Position)}
	switch step {
	case "try":
		txn := locktxn.Acquire(l, claim, i.UUID, i.Fields.record(), false)
		own := clientv3.Compare(clientv3.CreateRevision(l.Ticket(i.Lock, i.UUID)), "=", 0)
		txn.If = append(txn.If, own)
		return txn
	case "look":
		txn := locktxn.Look(l, claim, position, i.Before, true)
		if i.Before != "" { // Go's client looks for the older ones at once if that is gone
			txn.Then = append(txn.Then, txn.Else[2])
		}
		return locktxn.Txn{Then: txn.Then}
	case "scan":
		txn := locktxn.Look(l, claim, position, "", false)
		txn.Then = append(txn.Then, locktxn.ReadTail(l, i.Lock).Then[1])
		return txn
	case "turn":
		txn := locktxn.Turn(l, claim, position, "", i.Fields.record(), metadata.Ticket{}, 0)
		txn.Else = txn.Else[:claim.Reads()+1] // it reads the tail
		return txn
	case "cancel", "withdraw":
		txn := locktxn.Cancel(l, claim, i.UUID, lease)
		if step == "withdraw" {
			txn = locktxn.Withdraw(l, claim, i.UUID)
		} else if !i.Queued { // it also leaves a queue
			last := len(txn.Then) - 1
			txn.Then = append(txn.Then[:claim.Reads():claim.Reads()], txn.Then[last])
		}
		return txn
	}
	return jobFromGo(t, l, step, i, lease)
}

// jobFromGo builds the transactions of several locks and of jobs.
func jobFromGo(t *testing.T, l protocol.Layout, step string, i input, lease clientv3.LeaseID) locktxn.Txn {
	t.Helper()
	one := []locktxn.BatchLock{{Lock: i.Lock, UUID: i.UUID, Fields: i.Fields.record()}}
	switch step {
	case "acquire_all":
		var all []locktxn.BatchLock
		for _, of := range i.Locks {
			all = append(all, locktxn.BatchLock{Lock: of.Lock, UUID: of.UUID, Fields: of.Fields.record()})
		}
		return locktxn.Batch(l, all, nil, nil)
	case "read_period":
		return locktxn.ReadPeriod(l, i.Lock)
	case "acquire_once":
		seen := clientv3.Compare(clientv3.ModRevision(l.Period(i.Lock)), "=", number(t, i.Seen))
		txn := locktxn.Batch(l, one, []clientv3.Cmp{seen}, []clientv3.Op{clientv3.OpPut(l.Period(i.Lock), i.Taken)})
		txn.Else[2] = clientv3.OpGet(l.Period(i.Lock)) // it reads that in a transaction
		return txn
	case "settle":
		txn := locktxn.Settle(l, one, lease)
		txn.Then = append(txn.Then[:1:1], txn.Then[2:]...) // it reads the delay, too
		return txn
	}
	t.Fatalf("there is no step %q", step)
	return locktxn.Txn{}
}
