// Package etcdlocks follows the locks that other libraries made in etcd: those of etcd's Go client and of its lock
// service, elections, and single keys with a lease. It only reads, and claims nothing that a watch cannot know.
//
// key.go has the layout, queue.go who holds and who waits, watcher.go the list and the watch, lease.go the leases.
package etcdlocks

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// What is kept of hostile keys.
const (
	maxValue = 256     // bytes of a value
	maxName  = 4096    // bytes of a key; longer ones are left out
	maxKeys  = 100_000 // more are left out
)

// key is a key with a lease.
type key struct {
	name    string
	lock    string // the name of the lock that it holds or waits for
	single  bool   // it is not in a queue
	lease   int64
	created int64
	value   string
	seen    time.Time
	watched bool // it was seen to be created
}

// decode returns the key of a lock; false if it has no lease, or is too long.
//
// Contenders for one lock have its name as their prefix, and their lease as the last part. The one with the least
// create revision holds the lock, and the others queue. Any other key with a lease may be a lock or a registration.
func decode(kv protocol.KV) (k key, ok bool) {
	if kv.Lease == 0 || len(kv.Key) > maxName {
		return k, false
	}
	k = key{name: strings.Clone(kv.Key), lease: kv.Lease, created: kv.CreateRevision, value: printable(kv.Value)}
	if kv.IsQueued() {
		k.lock = k.name[:strings.LastIndexByte(k.name, '/')]
	} else {
		k.lock = k.name
		k.single = true
	}
	return k, true
}

// printable returns a value if it is text, cut; values of some libraries are binary.
func printable(value []byte) string {
	start := text.Cut(string(value[:min(len(value), maxValue+utf8.UTFMax)]), maxValue)
	if !utf8.ValidString(start) {
		return ""
	}
	return start
}
