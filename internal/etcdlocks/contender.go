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
	maxKeys  = 100_000 // more are left out
)

// contender is a key with a lease: it holds a lock, or waits for it.
type contender struct {
	metadata.Waiter
	place
	key   string
	lease int64
}

// place is what a key contends for. Contenders for a lock have its name as their prefix, and their lease as the last
// part: in hex or, from node's etcd3, in decimal. Any other key with a lease may be a lock or a registration.
type place struct {
	name   string
	single bool // one key, which need not be a lock
}

// contender returns the contender that a key is; nil for none. Its Waiter has the value as the owner, and the lease as
// the uuid.
func (v *View) contender(kv protocol.KV) *contender {
	if kv.Lease == 0 || len(kv.Key) > maxName || v.own.Parse(kv.Key).Kind != protocol.KindForeign {
		return nil
	}
	c := &contender{place: place{kv.Key, true}, key: kv.Key, lease: kv.Lease}
	if kv.IsContender() {
		c.place = place{kv.Key[:strings.LastIndexByte(kv.Key, '/')], false}
	}
	c.Waiter = metadata.Waiter{Name: c.name, Revision: kv.CreateRevision}
	c.UUID = strconv.FormatInt(kv.Lease, 16)
	c.Owner = printable(kv.Value)
	return c
}

// printable returns a value if it is text, cut; values of some libraries are binary.
func printable(value []byte) string {
	start := text.Cut(string(value[:min(len(value), maxValue+utf8.UTFMax)]), maxValue)
	if !utf8.ValidString(start) {
		return ""
	}
	return start
}
