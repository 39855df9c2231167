package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// handOver is after what time a second look finds that nearly all hand-overs are done.
const handOver = 500 * time.Millisecond

// free returns the locks that nobody holds, not even a part of them, although somebody waits, each with its first in
// line. A lock in its delay is not free.
func (all *snapshot) free() map[string]metadata.Waiter {
	taken := map[string]bool{}
	take := func(name string) {
		taken[name] = true
		if lock, _, ok := metadata.ParseShare(name); ok {
			taken[lock] = true
		}
	}
	for _, r := range all.locks {
		if r.Token != 0 {
			take(r.Name)
		}
	}
	for _, d := range all.delays {
		take(d.Lock)
	}
	free := map[string]metadata.Waiter{}
	for lock, queue := range all.waiters {
		if len(queue) > 0 && !taken[lock] {
			free[lock] = queue[0]
		}
	}
	return free
}

// unclaimed returns the locks that stay free, with the same waiter first in line, from the first look to others within
// --unclaimed-after, and the last snapshot. Nothing is waited for if none is free.
func (o *checkOptions) unclaimed(ctx context.Context, s *session,
	all *snapshot) (map[string]metadata.Waiter, *snapshot, error) {
	free := all.free()
	maps.DeleteFunc(free, func(lock string, _ metadata.Waiter) bool { return !o.globs.match(lock) })
	began := time.Now()
	for _, after := range []time.Duration{min(handOver, o.unclaimedAfter), o.unclaimedAfter} {
		if len(free) == 0 || o.unclaimedAfter == 0 {
			return nil, all, nil
		}
		sleep(ctx, after-time.Since(began))
		var err error
		if all, err = o.look(ctx, s); err != nil {
			return nil, nil, err
		}
		still := all.free()
		maps.DeleteFunc(free, func(lock string, first metadata.Waiter) bool { return still[lock].ID != first.ID })
	}
	return free, all, nil
}

// judgeUnclaimed adds the locks that nobody takes.
func (o *checkOptions) judgeUnclaimed(h *health, all *snapshot, free map[string]metadata.Waiter) {
	locks := slices.Sorted(maps.Keys(free))
	for _, lock := range locks[:min(maxNamed, len(locks))] {
		first := free[lock]
		h.found(pluginWarning, "nobody holds %s, %s, and the first in line (%s) does not take it",
			text.Visible(lock), waits(len(all.waiters[lock])),
			whoAs(&first.Holder, metadata.Share{}))
	}
	if more := len(locks) - maxNamed; more > 0 {
		h.found(pluginWarning, "and %d more that nobody takes", more)
	}
}

func waits(n int) string {
	if n == 1 {
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}
