package protocol

import "time"

// How long everything but locks stays in etcd: docs/protocol.md, Keys. Locks have no lease.
const (
	// PresenceTTL is the lease of an unlocker's presence. One that was not written for so long is stale.
	PresenceTTL = 15 * time.Second

	// TicketTTL is the lease of a waiter's ticket and of the tail that names it.
	TicketTTL = 10 * time.Second

	// CancelledTTL is the lease of the mark of a cancelled attempt: longer than any request can be under way. Linux
	// gives up a connection after 15 to 18 minutes without an acknowledgement (net.ipv4.tcp_retries2), and delivers
	// what was sent if the network recovers before that; a proxy may do the same.
	CancelledTTL = time.Hour

	// HistoryRetention is how long endings are kept unless the operator says otherwise.
	HistoryRetention = 7 * 24 * time.Hour

	// StatementTTL is the lease of a witness's statement: longer than any lock waits for its removal.
	StatementTTL = 24 * time.Hour

	// AuditRetention is how long the record of an operator's action is kept.
	AuditRetention = 30 * 24 * time.Hour
)
