package lockmetrics

import (
	"container/list"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// byLock measures, for each lock, the holds that their holders released and the waits, next to the lock's deadlines. It
// keeps a limited number of locks: names with a date or a customer in them would otherwise remain series forever. The
// lock that was not measured for longest makes room for another.
type byLock struct {
	limit int

	mu     sync.Mutex
	recent *list.List // of labels, the newest first
	known  map[string]*list.Element

	held, waited                *prometheus.HistogramVec
	alertAfter, autoUnlockAfter *prometheus.GaugeVec
}

func newByLock(register promauto.Factory, limit int) *byLock {
	gauges := func(name, help string) *prometheus.GaugeVec {
		return register.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
			[]string{"lock"})
	}
	return &byLock{limit: limit, recent: list.New(), known: map[string]*list.Element{},
		held: histogram(register, "lock_hold_seconds",
			"How long the lock was held, in holds that their holders ended; "+
				"with --metrics.lock-series=all only.", "lock"),
		waited: histogram(register, "lock_wait_seconds", "How long those waited in the lock's queue who got it; "+
			"with --metrics.lock-series=all only.", "lock"),
		alertAfter: gauges("lock_alert_after_seconds",
			"Time until the alert of the lock, as its last hold began; with --metrics.lock-series=all only."),
		autoUnlockAfter: gauges("lock_auto_unlock_after_seconds",
			"Time until the auto-unlock of the lock, as its last hold began; with --metrics.lock-series=all only."),
	}
}

// ended records a hold that its holder released. A share counts for the whole lock.
func (b *byLock) ended(r *metadata.Record, after time.Duration) {
	if b.limit <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := text.NameLabel(r.QueueName())
	b.remember(name)
	b.held.WithLabelValues(name).Observe(after.Seconds())
	if r.Alive != nil || r.MoreTime != nil || r.LockedAt.IsZero() {
		return // its deadlines are no longer those that it began with
	}
	for gauge, at := range map[*prometheus.GaugeVec]time.Time{
		b.alertAfter: r.AlertAt, b.autoUnlockAfter: r.AutoUnlockAt,
	} {
		if at.After(r.LockedAt) {
			gauge.WithLabelValues(name).Set(at.Sub(r.LockedAt).Seconds())
		}
	}
}

// acquired records a hold that began after a wait. Both times are by the waiter's clock.
func (b *byLock) acquired(r *metadata.Record, w metadata.Waiter) {
	after := r.LockedAt.Sub(w.Since.Time)
	if b.limit <= 0 || r.LockedAt.IsZero() || w.Since.IsZero() || after < 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := text.NameLabel(r.QueueName())
	b.remember(name)
	b.waited.WithLabelValues(name).Observe(after.Seconds())
}

// remember notes that this lock was measured now.
func (b *byLock) remember(name string) {
	if e := b.known[name]; e != nil {
		b.recent.MoveToFront(e)
		return
	}
	if b.recent.Len() >= b.limit {
		oldest, _ := b.recent.Remove(b.recent.Back()).(string)
		delete(b.known, oldest)
		b.held.DeleteLabelValues(oldest)
		b.waited.DeleteLabelValues(oldest)
		b.alertAfter.DeleteLabelValues(oldest)
		b.autoUnlockAfter.DeleteLabelValues(oldest)
	}
	b.known[name] = b.recent.PushFront(name)
}
