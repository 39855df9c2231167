// Package alertpush sends alerts about locks to Alertmanager, for installations without Prometheus, or that cannot wait
// for its scrape.
//
// A [Pusher] judges the locks whenever they change and whenever a deadline passes, at most once a second, and keeps the
// set of alerts. What is new goes to every Alertmanager at once; everything is re-sent every minute, because
// Alertmanager forgets alerts that it no longer receives. An alert that is over is sent as resolved for 15 minutes.
//
// The alerts have the names of the rules in deploy/prometheus, and only the labels that identify the alert, its lock,
// and its recipients: the owner, and attributes of the record that the operator named. So every unlocker pushes the
// same alerts, Alertmanager merges them, and a restart starts none of them again. Host and purpose are annotations.
//
// Only the goroutine that talks to an Alertmanager waits for it. While one does not answer, the latest state of each
// alert is kept for it, so its queue is never longer than the set of alerts.
//
// While the view of the locks is not current, its last state is pushed: an alert that ends late is better than one that
// ends because etcd is unavailable.
package alertpush

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// minInterval is the minimum time between two updates.
const minInterval = time.Second

// Config connects a pusher to the view of the locks.
type Config struct {
	URLs   []string          // of the Alertmanagers, which all get everything; with the path before /api/v2
	Resend time.Duration     // how often everything is re-sent; Alertmanager forgets alerts after four times as long
	Labels map[string]string // of every alert, besides alertname, lock, owner and severity
	// Attributes are the attributes of records that become labels of alerts about their locks, by label. A lock without
	// the attribute has what Labels says.
	Attributes map[string]string
	// Dashboard is the URL of the dashboard, for links; empty if there is none.
	Dashboard string
	Policy    staleness.Policy
	Removes   bool // whether locks past their deadline are removed: if so, one that stays is critical
	// Excluded reports whether a lock is never removed.
	Excluded func(lock string) bool

	Locks   func() []*metadata.Record
	Changed func() <-chan struct{} // closed at the next change of Locks
	// Waiters returns how many wait in the queue of this name. Optional.
	Waiters func(queue string) int
	Clock   func() time.Duration // the monotonic clock that stamped Record.Seen
	Now     func() time.Time     // the wall clock; time.Now when nil
	// Deadlocks returns the cycles of processes that wait for each other, oldest first.
	Deadlocks func() []deadlock.Cycle
	// Unclaimed returns the locks that nobody takes although somebody waits, longest first, and how long it takes until
	// there may be another one if nothing changes; zero if none may.
	Unclaimed func() ([]unclaimed.Lock, time.Duration)
	// Backtrace reads where in the code the hold with this uuid took the lock; empty if unknown. Optional.
	Backtrace func(ctx context.Context, lock, uuid string) (string, error)

	Client func() *http.Client // the present one, with the credentials that the Alertmanagers require
	Log    zerolog.Logger
}

// Pusher pushes alerts. Make it with [New].
type Pusher struct {
	c     Config
	peers []*peer
	*metrics

	// Only Run touches these.
	alerts alertSet
	seen   []*metadata.Record // by the last update
	cycles []deadlock.Cycle   // by the last update
	free   []unclaimed.Lock   // by the last update
	next   time.Time          // when something may be new although nothing changes; zero = never

	mu    sync.Mutex
	ended []metadata.Ending // since the last update
	wake  chan struct{}     // holds a token if there are some
}

// New returns a pusher.
func New(c Config) *Pusher {
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Pusher{c: c, metrics: newMetrics(), alerts: alertSet{}, wake: make(chan struct{}, 1)}
	for _, url := range c.URLs {
		p.peers = append(p.peers, newPeer(url, &p.c, p.metrics))
	}
	return p
}

// Ended records the end of a hold; ending is nil if its holder released it. It is meant to be called by the view, and
// never waits.
func (p *Pusher) Ended(_ *metadata.Record, ending *metadata.Ending) {
	if ending == nil || !byUnlocker(ending) || p.c.Now().Sub(ending.EndedAt.Time) >= removedFor {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ended) < maxAlerts {
		p.ended = append(p.ended, *ending)
	}
	signal(p.wake)
}

func (p *Pusher) takeEnded() []metadata.Ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := p.ended
	p.ended = nil
	return ended
}

// Run pushes until ctx ends, then returns nil. It resolves nothing at the end: other unlockers continue, or
// Alertmanager forgets.
func (p *Pusher) Run(ctx context.Context) error {
	var peers sync.WaitGroup
	defer peers.Wait()
	for _, peer := range p.peers {
		peers.Go(func() { peer.run(ctx) })
	}
	resendAt := p.c.Now()
	for {
		changed := p.c.Changed() // before the update, so that no change is missed
		now := p.c.Now()
		again := !now.Before(resendAt)
		if again {
			resendAt = now.Add(p.c.Resend)
		}
		next := p.look(ctx, again)
		if !p.wait(ctx, changed, until(protocol.Earlier(next, resendAt), p.c.Now(), p.c.Resend)) {
			return nil
		}
	}
}

// wait returns after a change or after d, but not before minInterval. It reports false if ctx ended.
func (p *Pusher) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	rest := time.NewTimer(minInterval)
	defer rest.Stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-p.wake:
	case <-timer.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
		return true
	}
}

// look updates the alert set, and queues what is new, or all of it, for the peers. It returns when to look again if
// nothing changes.
func (p *Pusher) look(ctx context.Context, again bool) (next time.Time) {
	now := staleness.Moment{Wall: p.c.Now(), Mono: p.c.Clock()}
	locks := p.c.Locks()
	ended := p.takeEnded()
	stuck := p.deadlocks()
	free, soon := p.unclaimed()
	if soon > 0 {
		p.next = protocol.Earlier(p.next, now.Wall.Add(soon))
	}
	if due := !p.next.IsZero() && !now.Wall.Before(p.next); !again && !due && len(ended) == 0 &&
		identical(locks, p.seen) && alike(stuck, p.cycles) && sameUnclaimed(free, p.free) {
		return p.next // something else changed
	}
	p.alerts.begin()
	var needs []need
	needs, p.next = p.needs(locks, now)
	news := p.update(ctx, needs)
	news = append(news, p.updateDeadlocks(stuck, now.Wall)...)
	if news = append(news, p.updateUnclaimed(free)...); soon > 0 {
		p.next = protocol.Earlier(p.next, now.Wall.Add(soon))
	}
	for _, e := range ended {
		a := p.removed(e)
		p.alerts.set(a, e.UUID)
		news = append(news, a)
	}
	news = append(news, p.alerts.finish(now.Wall)...)
	if again {
		news = p.alerts.all()
	}
	p.seen = locks
	p.cycles = stuck
	p.free = free
	p.metrics.alerts.Set(float64(p.alerts.active(now.Wall)))
	for _, peer := range p.peers {
		peer.queue(news)
	}
	return p.next
}

// identical reports whether a view returned the same locks twice: then it is the same slice.
func identical(a, b []*metadata.Record) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// signal puts a token into c unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// byUnlocker reports whether an unlocker ended the hold.
func byUnlocker(e *metadata.Ending) bool {
	return e.Ended == metadata.EndedAutoUnlocked || e.Ended == metadata.EndedAbandoned
}
