// Package etcdlocks follows the locks that other libraries made in etcd: those of etcd's Go client and of its lock
// service, elections, and single keys with a lease. It only reads, and claims nothing that a watch cannot know.
//
// Contenders for such a lock have its name as their prefix, and their lease as the last part. The one with the least
// create revision holds the lock, and the others queue. So each key is read as a ticket of our protocol, and a lockview
// follows the queues. Any other key with a lease may be a lock or a registration; it is read as a queue of its own.
package etcdlocks

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// What is kept of hostile keys.
const (
	maxValue = 256     // bytes of a value
	maxName  = 4096    // bytes of a key; longer ones are left out
	maxKeys  = 100_000 // below a prefix; more are left out
)

// single is the ticket of a key that has a queue of its own.
const single = "single"

// ticketKeys returns the keys of the tickets that a key can be read as: in a queue, and in one of its own.
func ticketKeys(l protocol.Layout, key string) (queued, own string) {
	i := strings.LastIndexByte(key, '/')
	if last := key[i+1:]; i > 0 && last != "" && strings.Trim(last, "0123456789abcdef") == "" {
		queued = l.Ticket(key[:i], last)
	}
	return queued, l.Ticket(key, single)
}

// ticket returns a key as a ticket, with its lease, and with its value as the owner.
func ticket(l protocol.Layout, kv protocol.KV) (t protocol.KV, ok bool) {
	if kv.Lease == 0 || len(kv.Key) > maxName {
		return kv, false
	}
	t = kv
	queued, own := ticketKeys(l, kv.Key)
	if t.Key = own; kv.IsQueued() {
		t.Key = queued
	}
	t.Value = []byte(protocol.Marshal(metadata.Ticket{UUID: strconv.FormatInt(kv.Lease, 16),
		Identity: metadata.Identity{Owner: printable(kv.Value)}}))
	return t, true
}

// printable returns a value if it is text, cut; values of some libraries are binary.
func printable(value []byte) string {
	start := text.Cut(string(value[:min(len(value), maxValue+utf8.UTFMax)]), maxValue)
	if !utf8.ValidString(start) {
		return ""
	}
	return start
}

// keyOf returns the key that was read as a ticket.
func keyOf(w *metadata.Waiter) string {
	if w.ID == single {
		return w.Name
	}
	return w.Name + "/" + w.ID
}

// leaseOf returns the lease of a ticket.
func leaseOf(w *metadata.Waiter) int64 {
	lease, _ := strconv.ParseInt(w.UUID, 16, 64) // as ticket wrote it
	return lease
}
