package deadlock_test

import (
	"fmt"
	"testing"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// BenchmarkFind measures a search among 100,000 locks: its cost grows with the number of waiters.
func BenchmarkFind(b *testing.B) {
	for _, waiters := range []int{0, 100, 10_000, 90_000} {
		b.Run(fmt.Sprintf("locks=100000/waiters=%d/cycles=0", waiters),
			func(b *testing.B) { bench(b, many(100_000, waiters, 0), 0) })
	}
	b.Run("locks=100000/waiters=10000/cycles=5000", func(b *testing.B) { bench(b, many(100_000, 10_000, 2), 5000) })
	b.Run("locks=100000/waiters=50000/cycles=1", func(b *testing.B) { bench(b, many(100_000, 50_000, 50_000), 1) })
	b.Run("readers=10000/waiters=10000/cycles=1", func(b *testing.B) { bench(b, crowd(10_000), 1) })
}

func bench(b *testing.B, w *world, want int) {
	for b.Loop() {
		if n := len(deadlock.Find(w.locks, w.queues)); n != want {
			b.Fatalf("%d cycles, want %d", n, want)
		}
	}
}

// many is n locks of as many processes. As many of them as there are waiters wait for the lock of the next one, in
// cycles of a length; in one long chain if that is 0.
func many(n, waiters, length int) *world {
	w := newWorld()
	for i := range n {
		owner := fmt.Sprintf("p%06d", i)
		w.locks = append(w.locks, &metadata.Record{Name: "lock-" + owner, Token: 1,
			Holder: metadata.Holder{Owner: owner, Hostname: owner + "-0", PID: 7}, LockedAt: at(1)})
	}
	for i := range waiters {
		next := i + 1
		if length > 0 && next%length == 0 {
			next -= length
		}
		w.waits(fmt.Sprintf("p%06d", i), fmt.Sprintf("lock-p%06d", next%n), 2)
	}
	return w
}

// crowd is n readers of one lock who wait for another one, and n who hold that one and wait to write.
func crowd(n int) *world {
	w := newWorld()
	for i := range n {
		for lock, owner := range map[string]string{"a": fmt.Sprintf("r%05d", i), "b": fmt.Sprintf("w%05d", i)} {
			r := &metadata.Record{Name: metadata.ShareName(lock, 100_000+i), Token: 1,
				Holder: metadata.Holder{Owner: owner, Hostname: owner + "-0", PID: 7}, LockedAt: at(1)}
			r.Attributes = map[string]any{metadata.AttributeKind: metadata.HoldsShared}
			w.locks = append(w.locks, r)
			w.waits(owner, map[string]string{"a": "b", "b": "a"}[lock], 2)
		}
	}
	sortLocks(w)
	return w
}
