package protocol

import "time"

// How long what is not a lock stays in etcd: docs/protocol.md, Keys. Locks themselves have no lease.
const (
	// PresenceTTL is the lease of an unlocker's presence. One that was not written for so long is left over.
	PresenceTTL = 15 * time.Second

	// TicketTTL is the lease of a waiter's ticket and of the tail that names it.
	TicketTTL = 10 * time.Second

	// CancelledTTL is the lease of what forbids a late commit: longer than any request can be under way. Linux gives a
	// connection up whose other end acknowledges nothing after 15 to 18 minutes (net.ipv4.tcp_retries2), and delivers
	// what was sent if the network comes back before; a proxy may do the same.
	CancelledTTL = time.Hour

	// HistoryRetention is how long endings are kept unless the operator says otherwise.
	HistoryRetention = 7 * 24 * time.Hour

	// AuditRetention is how long the record of an operator's action is kept.
	AuditRetention = 30 * 24 * time.Hour
)
