// Package route takes locks that live on several clusters of etcd. A table says on which, by the first segment of a
// lock's name: "billing" for "billing/2026-08".
//
//	locks, err := route.New(route.File("/etc/locks/routes.yaml"),
//		map[string]*mutex.Client{"eu-1": eu1, "eu-2": eu2}, route.Options{})
//	...
//	err = locks.Do(ctx, "billing/2026-08", sendInvoices, mutex.Purpose("send the invoices of August"))
//
// The table is a file in YAML or JSON, which is read again when it changes:
//
//	default: {cluster: eu-1}
//	routes:
//	  - {segment: shop, cluster: eu-2}
//	  - {segment: billing, cluster: eu-2, from: eu-1, move: 1}
//
// # Moving a segment
//
// A route with from is that of a segment which is moving, or has moved and still has holders or clients that do not
// know. Before a client takes a lock of it in the new cluster, it makes sure that the move holds the lock in the old
// one, by a claim: a record like any other, which stays. So no lock has two holders, however old the table of a client
// is, and clients that know of no table are safe as long as they use the old cluster. A lock that is held there is
// waited for there. See the page on routes in the documentation, and [Forget] for how a move ends.
//
// # What it does not do
//
// Take locks of different clusters together, or move what lies beside locks: periods and tasks of package jobs. Tokens
// grow across the clusters; a [*TokenError] says where they would not. Waiters keep their places in a queue only within
// one cluster.
package route
