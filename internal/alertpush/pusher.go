package alertpush

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// atMostEvery is how often the locks are looked at while they change all the time.
const atMostEvery = time.Second

// Config joins a pusher to the picture of the locks. URLs, Resend, Locks, Changed and Clock are required.
type Config struct {
	URLs   []string          // of the Alertmanagers, each told everything; with the path that /api/v2 is below
	Resend time.Duration     // how often everything is sent again; Alertmanager forgets after four times as long
	Labels map[string]string // of every alert, beside alertname, lock and severity
	// Dashboard is the address of the dashboard, for links; empty when there is none.
	Dashboard string
	Policy    staleness.Policy
	Removes   bool // locks past their deadline are removed, so one that stays is critical

	Locks   func() []*metadata.Record
	Changed func() <-chan struct{} // is closed when Locks changed
	Clock   func() time.Duration   // the monotonic clock that stamped Record.Seen
	Now     func() time.Time       // the wall clock; time.Now when nil
	// Deadlocks are the processes that wait for each other, the oldest cycle first. Nil: nobody asks.
	Deadlocks func() []deadlock.Cycle
	// Backtrace reads where in the code the lock was taken by the hold with this uuid; empty when it is not known. Nil:
	// nobody asks.
	Backtrace func(ctx context.Context, lock, uuid string) (string, error)

	Client *http.Client // with the user and certificates that the Alertmanagers want; a plain one when nil
	Log    zerolog.Logger
}

// Pusher pushes. Make it with [New].
type Pusher struct {
	c       Config
	peers   []*peer
	metrics *metrics

	// Only Run touches these.
	book  book
	seen  []*metadata.Record // at the last look
	stuck []deadlock.Cycle   // at the last look
	next  time.Time          // when there may be something new though nothing changed; zero = never

	mu    sync.Mutex
	ended []metadata.Ending // since the last look
	wake  chan struct{}     // holds a token when there are some
}

// New joins a pusher. It fails, with a sentence for the operator, for what can not work.
func New(c Config) (*Pusher, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("push to Alertmanager: %w", err)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	p := &Pusher{c: c, metrics: newMetrics(), book: book{}, wake: make(chan struct{}, 1)}
	for _, url := range c.URLs {
		p.peers = append(p.peers, newPeer(url, &p.c, p.metrics))
	}
	return p, nil
}

func (c Config) check() error {
	switch {
	case len(c.URLs) == 0:
		return errors.New("there is no address")
	case c.Resend < time.Second:
		return fmt.Errorf("alerts are sent again after %v, which is less than a second", c.Resend)
	case c.Locks == nil || c.Changed == nil || c.Clock == nil:
		return errors.New("it is not joined: Locks, Changed and Clock are required")
	}
	return nil
}

// Ended takes note of the end of a hold; ending is nil when its holder released it. It is meant for the callback of the
// view, and never waits.
func (p *Pusher) Ended(_ *metadata.Record, ending *metadata.Ending) {
	if ending == nil || ending.Ended != metadata.EndedAutoUnlocked || p.c.Now().Sub(ending.EndedAt.Time) >= removedFor {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ended) < most {
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

// Run pushes until ctx ends, and then returns nil. It resolves nothing at the end: others go on, or Alertmanager
// forgets.
func (p *Pusher) Run(ctx context.Context) error {
	var peers sync.WaitGroup
	defer peers.Wait()
	for _, peer := range p.peers {
		peers.Go(func() { peer.run(ctx) })
	}
	resendAt := p.c.Now()
	for {
		changed := p.c.Changed() // before the look, so that no change is missed
		now := p.c.Now()
		again := !now.Before(resendAt)
		if again {
			resendAt = now.Add(p.c.Resend)
		}
		next := p.look(ctx, again)
		if !p.wait(ctx, changed, until(earlier(next, resendAt), p.c.Now(), p.c.Resend)) {
			return nil
		}
	}
}

// wait returns when something changed or the time is over, though not at once. It is false when ctx ended.
func (p *Pusher) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	rest := time.NewTimer(atMostEvery)
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

// look finds out what there is to say, and tells the peers all of it or what is new. It returns when to look again if
// nothing changes.
func (p *Pusher) look(ctx context.Context, again bool) (next time.Time) {
	now := staleness.Moment{Wall: p.c.Now(), Mono: p.c.Clock()}
	locks := p.c.Locks()
	ended := p.takeEnded()
	stuck := p.cycles()
	if due := !p.next.IsZero() && !now.Wall.Before(p.next); !again && !due && len(ended) == 0 &&
		identical(locks, p.seen) && alike(stuck, p.stuck) {
		return p.next // something else changed
	}
	p.book.open()
	var needs []need
	needs, p.next = p.needs(locks, now)
	news := p.enter(ctx, needs)
	news = append(news, p.enterCycles(stuck, now.Wall)...)
	for _, e := range ended {
		news = append(news, p.book.enter(p.removed(e), e.UUID))
	}
	news = append(news, p.book.close(now.Wall)...)
	if again {
		news = p.book.all()
	}
	p.seen, p.stuck = locks, stuck
	p.metrics.alerts.Set(float64(p.book.going(now.Wall)))
	for _, peer := range p.peers {
		peer.tell(news)
	}
	return p.next
}

// identical tells whether a view has shown the same twice: then it is the same slice.
func identical(a, b []*metadata.Record) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// signal puts a token into c where there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
