package lockview

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// reconcile makes the snapshot match the list in b, except for keys touched meanwhile (nil: none). It returns what
// changed, and how many locks differed from the list. The caller holds mu.
func (v *View) reconcile(b *builder, t touched) (changes []lockChange, differed int) {
	withStatements := v.reconcileStatements(b, t)
	changes, differed = v.reconcileLocks(b, t)
	for _, lock := range withStatements {
		if c, changed := v.snap.updateStatements(lock); changed {
			changes = append(changes, c)
			differed++
		}
	}
	v.snap.dropUnmatched()
	now := v.Clock()
	for i := range changes {
		v.stamp(&changes[i], now, false)
	}
	b.snap.queues.keepSeen(v.snap.queues)
	keepTouched(t, protocol.KindTicket, b.snap.queues, v.snap.queues)
	v.snap.queues = b.snap.queues
	v.queues = nil
	keepTouched(t, protocol.KindDelay, b.snap.delays, v.snap.delays)
	v.snap.delays = b.snap.delays
	v.delays = nil
	v.reconcileUnlockers(b.snap.unlockers, t)
	v.snap.updateAllFree(now)
	if !t[protocol.Key{Kind: protocol.KindForeign}] {
		v.snap.foreign = b.snap.foreign
		v.snap.misplaced.replace(b.snap.misplaced)
		v.shown = nil
	}
	return changes, differed
}

func (v *View) reconcileLocks(b *builder, t touched) (changes []lockChange, differed int) {
	before := v.snap.locks
	after := b.locks
	merged := make(index, 0, max(len(before), len(after)))
	for len(before) > 0 || len(after) > 0 {
		var c lockChange
		first := compareNames(before, after)
		if first <= 0 {
			c.before, before = before[0], before[1:]
		}
		if first >= 0 {
			c.after, after = after[0], after[1:]
		}
		now := c.before
		if c.before != c.after && !t[protocol.Key{Kind: protocol.KindField, Lock: c.name()}] {
			now = c.after
			changes = append(changes, c)
			if !v.knownInexact(&c) {
				differed++
			}
		}
		if now != nil {
			merged = append(merged, now)
		}
	}
	v.snap.locks = merged
	for _, c := range changes {
		if c.after != nil {
			v.snap.attachStatements(c.after)
		}
	}
	return changes, differed
}

// knownInexact reports whether the snapshot was expected to be inexact about the lock, so that a difference does not
// mean that the watch missed something: the lock has more keys than are kept, or was only assumed to have foreign keys.
func (v *View) knownInexact(c *lockChange) bool {
	if c.before == nil || c.after == nil || c.replaced() || c.deadlinesChanged() {
		return false
	}
	n, has := v.snap.foreign.in[c.name()]
	return c.before.keys.surplus > 0 || has && n == 0
}

// compareNames compares the first names of two sorted lists. An empty list comes last.
func compareNames(a, b []*held) int {
	switch {
	case len(b) == 0:
		return -1
	case len(a) == 0:
		return 1
	}
	return strings.Compare(a[0].Name, b[0].Name)
}

// keepTouched gives what was listed the current values of the keys of this kind that were touched meanwhile.
func keepTouched[V any](t touched, kind protocol.Kind, listed, current map[string]V) {
	for key := range t {
		if key.Kind != kind {
			continue
		}
		name := cmp.Or(key.Lock, key.ID)
		delete(listed, name)
		if value, ok := current[name]; ok {
			listed[name] = value
		}
	}
}

func (v *View) reconcileUnlockers(listed map[string]unlocker, t touched) {
	keepTouched(t, protocol.KindUnlocker, listed, v.snap.unlockers)
	for instance, now := range listed {
		known, ok := v.snap.unlockers[instance]
		if !ok || now.revision != known.revision {
			continue
		}
		if !v.state.Synced {
			known.heard = now.heard // its writes could not arrive meanwhile
		}
		listed[instance] = known // keeps its time of arrival
	}
	v.snap.unlockers = listed
}

// reportListed reports what a list changed. etcd may have the endings of holds that it no longer found; reading them
// stops after a second, so that many of them do not hold up the view.
func (v *View) reportListed(ctx context.Context, changes []lockChange) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	v.report(changes, nil, func(id string) (ending *metadata.Ending) {
		if v.src.Ending != nil && ctx.Err() == nil {
			ending, _ = v.src.Ending(ctx, id)
		}
		return ending
	})
}

// report calls the hooks for the holds that began, ended or died. left are the waiters that left their queues, by uuid.
func (v *View) report(changes []lockChange, left map[string]metadata.Waiter,
	ending func(id string) *metadata.Ending) {
	for _, c := range changes {
		if h := c.ended(); h != nil && v.opt.OnEnded != nil {
			v.opt.OnEnded(&h.Record, ending(h.HistoryID()))
		}
		if h := c.began(); h != nil {
			if w, waited := left[h.UUID]; waited && v.opt.OnAcquired != nil {
				v.opt.OnAcquired(&h.Record, w)
			}
		}
		if c.died() && v.opt.OnHolderDied != nil {
			v.opt.OnHolderDied(&c.after.Record)
		}
	}
}

// reconcileStatements replaces the statements by those of a list, except for keys touched meanwhile. It returns the
// locks whose statements differ.
func (v *View) reconcileStatements(b *builder, t touched) (locks []string) {
	before, after := v.snap.statements.byKey, b.snap.statements.byKey
	for key := range t {
		if st, stands := before[key]; stands {
			after[key] = st
		} else {
			delete(after, key)
		}
	}
	for key, known := range before {
		switch st, ok := after[key]; {
		case st == known:
		case ok && b.reuse && st.Revision == known.Revision:
			after[key] = known // keeps when it was first seen
		default:
			locks = append(locks, known.Name)
		}
	}
	for key, st := range after {
		if before[key] != st {
			locks = append(locks, st.Name)
		}
	}
	v.snap.statements = b.snap.statements
	slices.Sort(locks)
	return slices.Compact(locks)
}
