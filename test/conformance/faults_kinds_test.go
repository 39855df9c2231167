//go:build conformance

package conformance

import (
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

var kindFaults = []*fault{
	{name: "limit", about: "there is a permit more than the limit says", check: "semaphore",
		behind: true, says: "want held", short: true, request: func(r *goRequest) {
			if r.Limit > 0 {
				r.Limit++
			}
		}},
	{name: "compare of shares", about: "a claim does not compare the other shares", check: "semaphore",
		behind: true, says: "want held", short: true, txn: dropRangeCompares},
	{name: "weight", about: "a heavy weight takes one permit", check: "a heavy weight", behind: true,
		says: "1 tickets for", request: func(r *goRequest) { r.Weight = min(r.Weight, 1) }},
	{name: "newcomers for permits", about: "a claim of permits passes those who wait", check: "a heavy weight",
		behind: true, says: "a newcomer passed the waiters", short: true,
		txn: dropCompares("/.tail", pb.Compare_CREATE, true), answer: hide("/.tail")},
	{name: "writer", about: "a writer does not compare the shares", check: "readers and a writer", behind: true,
		says: "want held", short: true, txn: dropRangeCompares},
	{name: "reader", about: "a reader does not compare C(uuid) of the lock", check: "readers and a writer",
		behind: true, says: "want held", short: true, txn: dropCompares("catalogue/uuid", pb.Compare_CREATE, true)},
	{name: "delay of a share", about: "the number of a share in its delay is given out", check: "lock delay of a share",
		says: "was given out", short: true, txn: dropCompares("/.delays/", pb.Compare_CREATE, true)},
	{name: "cancel of a share", about: "a claim with an unanswered send is not cancelled",
		check: "ghost of a share", says: "a late send took the lock", txn: eachBranch(dropPuts("/.cancelled/"))},
	{name: "several", about: "one of several locks is taken although another holds it", check: "several together",
		behind: true, says: "want held", short: true, txn: dropCompares("/uuid", pb.Compare_CREATE, true)},
	{name: "all of several", about: "the last of several locks is left out", check: "several together", behind: true,
		says: `the record of "account/2" has token 0`, short: true, txn: eachBranch(dropPuts("/account%2F2/"))},
	{name: "many", about: "of more locks than fit into a transaction, those are taken that do",
		check: "many together", behind: true, says: "want refused", short: true, request: func(r *goRequest) {
			r.Names = r.Names[:min(len(r.Names), mutex.MaxTogether)]
		}},
	{name: "kinds of several", about: "several locks are plain ones, whatever is wanted", check: "kinds together",
		behind: true, says: "want refused", short: true, request: func(r *goRequest) {
			r.Own = nil
		}},
	{name: "rest of several", about: "what was taken is kept when the wait for the next is over",
		check: "many together", behind: true, says: `nothing left of ["many/00"]`,
		txn: eachBranch(dropDeletes("/many%2F"))},
	{name: "period of a failure", about: "a job that failed keeps its period", check: "a period given back",
		behind: true, says: "after a job that failed", short: true, txn: keepPeriod},
	{name: "period", about: "nobody reads which period was taken", check: "once per period", behind: true,
		says: "in a period that is taken it says", short: true,
		txn: dropCompares("/.periods/", pb.Compare_MOD, true), answer: hide("/.periods/")},
	{name: "compare of the period", about: "a job does not compare M(.periods)", check: "a period taken meanwhile",
		says: "it ran in a period that was taken", short: true, txn: dropCompares("/.periods/", pb.Compare_MOD, true)},
	{name: "address", about: "a leader does not say where it is", check: "a leader", behind: true,
		says: "the leader's address is", short: true, request: func(r *goRequest) { r.Address = "" }},
	{name: "signs of life", about: "a leader gives none", check: "a leader", behind: true, says: "a sign of life",
		txn: keepDeadlines},
}

// dropRangeCompares leaves out compares of ranges: of shares, and of their delays.
func dropRangeCompares(t *pb.TxnRequest) {
	t.Compare = slices.DeleteFunc(t.Compare, func(c *pb.Compare) bool { return len(c.RangeEnd) > 0 })
}

func keepDeadlines(t *pb.TxnRequest) {
	if !putsUUID(t) {
		eachBranch(dropPuts("_at"))(t)
	}
}

// keepPeriod gives no period back.
func keepPeriod(t *pb.TxnRequest) {
	if !putsUUID(t) {
		eachBranch(dropPuts("/.periods/"))(t)
	}
}

// hide leaves such keys out of what was read.
func hide(key string) func(*pb.TxnRequest, *pb.TxnResponse, error) error {
	return func(_ *pb.TxnRequest, r *pb.TxnResponse, err error) error {
		for _, one := range r.Responses {
			if read := one.GetResponseRange(); read != nil {
				read.Kvs = slices.DeleteFunc(read.Kvs, func(kv *mvccpb.KeyValue) bool {
					return strings.Contains(string(kv.Key), key)
				})
			}
		}
		return err
	}
}
