package etcdlocks

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// queue is a lock: its holder, and then those who wait for it.
type queue struct {
	keys  []*key
	since time.Time // when the first one was seen to get the lock; zero = not watched
	seen  time.Time // when it was first seen to have it
}

// order is the order in which contenders get a lock.
func order(a, b *key) int {
	return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.name, b.name))
}

// put adds a key, or replaces what is known of it.
func (q *queue) put(k *key) {
	i, found := slices.BinarySearchFunc(q.keys, k, order)
	if found {
		q.keys[i] = k
		return
	}
	q.keys = slices.Insert(q.keys, i, k)
	if i == 0 {
		q.begin(k.seen, k.watched)
	}
}

// remove removes a key at a time; watched is false if it was only found to be gone.
func (q *queue) remove(k *key, at time.Time, watched bool) {
	i, found := slices.BinarySearchFunc(q.keys, k, order)
	if !found {
		return
	}
	q.keys = slices.Delete(q.keys, i, i+1)
	if i == 0 {
		q.begin(at, watched)
	}
}

// begin notes when the present holder got the lock, as far as that was seen.
func (q *queue) begin(at time.Time, watched bool) {
	q.seen = at
	q.since = time.Time{}
	if watched {
		q.since = at
	}
}

// leased returns the lock for readers.
func (q *queue) leased(l *lease) *locks.Leased {
	holder := q.keys[0]
	all := &locks.Leased{Name: holder.lock, Single: holder.single, Key: holder.name, Value: holder.value,
		Lease: holder.lease, Token: holder.created, Since: q.since, Seen: q.seen}
	if l != nil {
		all.TTL = l.ttl
		all.Expires = l.expires
		all.Keys = l.keys
		all.Why = l.why
	}
	for _, k := range q.keys[1:] {
		w := metadata.Waiter{Name: k.lock, ID: k.name, Revision: k.created}
		w.UUID = strconv.FormatInt(k.lease, 16)
		w.Owner = k.value
		if k.watched {
			w.Since = metadata.Time{Time: k.seen}
		}
		all.Waiters = append(all.Waiters, w)
	}
	return all
}
