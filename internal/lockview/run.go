package lockview

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// longLived is how long a watch must live to reset the count of consecutive failures.
const longLived = 5 * time.Second

// Run keeps the snapshot current until ctx ends, then returns nil. After any failure it waits a little and lists again.
func (v *View) Run(ctx context.Context) error {
	reason := ReasonStart
	failures := 0
	for {
		err := v.relist(ctx, reason)
		if err == nil {
			began := time.Now()
			err = v.watch(ctx)
			reason = reasonOf(err)
			if time.Since(began) >= longLived {
				failures = 0
			}
		} else {
			err = fmt.Errorf("the list failed: %w", err)
			reason = ReasonList
		}
		if ctx.Err() != nil {
			return nil
		}
		event := v.opt.Log.Debug()
		if v.noteLost(err, reason) {
			event = v.opt.Log.Warn()
		}
		event.Err(err).Str("reason", reason).Msg("the view of the locks was interrupted")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff(failures)):
		}
		failures++
	}
}

// Load reads all keys once, for a process that does not follow them: proofs count from when they were written.
func (v *View) Load(ctx context.Context) error {
	v.loadOnly = true
	return v.relist(ctx, ReasonStart)
}

// relist makes the snapshot match a new list.
func (v *View) relist(ctx context.Context, reason string) error {
	b, revision, err := v.list(ctx, true)
	if err != nil {
		return err
	}
	if highest := v.Fresh().HighestRevision; revision < highest {
		v.opt.Log.Error().Int64("revision", revision).Int64("highest", highest).
			Msg("etcd was restored from an older state")
		// Equal revisions no longer mean equal keys.
		if b, revision, err = v.list(ctx, false); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.touched = nil
	changes, _ := v.reconcile(b, nil)
	v.stats.Resyncs[reason]++
	v.noteSynced(revision)
	v.announce()
	v.mu.Unlock()
	v.reportListed(ctx, changes)
	return nil
}

// watch follows etcd from the snapshot's revision on, and compares the snapshot with a list every few minutes.
func (v *View) watch(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	c := comparison{view: v, next: time.Now().Add(v.opt.RelistEvery)}
	defer c.lists.Wait()
	defer stop()
	return v.src.Watch(ctx, v.layout.Prefix(), v.Fresh().Revision, func(revision int64, events []protocol.Event) {
		v.apply(revision, events)
		c.advance(ctx)
	})
}

func (v *View) apply(revision int64, events []protocol.Event) {
	v.mu.Lock()
	v.noteSynced(revision)
	now := v.Clock()
	changes, shown := v.snap.apply(v, events, now)
	for i := range changes {
		v.stamp(&changes[i], now, true)
	}
	for _, e := range events {
		if e.Deleted {
			v.stats.Deletes++
		} else {
			v.stats.Puts++
		}
	}
	if len(changes) > 0 || len(events) > 0 && v.opt.Keep == nil {
		v.announce()
	}
	v.mu.Unlock()
	v.report(changes, shown.left, func(id string) *metadata.Ending { return decodeEnding(shown.endings[id]) })
}

// noteSynced notes that the snapshot matches etcd at a revision. The caller holds mu.
func (v *View) noteSynced(revision int64) {
	v.state.hear(revision)
	v.state.sync()
}

// noteLost notes that the snapshot no longer follows etcd, and reports whether that is news.
func (v *View) noteLost(err error, reason string) (news bool) {
	cause := v.opt.Explain(err)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.announce()
	if reason != ReasonList {
		v.stats.WatchRestarts[reason]++
	}
	return v.state.lose(cause)
}

// backoff returns how long to wait after this many consecutive failures: 100 ms, doubled each time up to 5 s, half of
// it random.
func backoff(failures int) time.Duration {
	d := min(5*time.Second, 100*time.Millisecond<<min(failures, 6))
	return d/2 + rand.N(d/2)
}

// comparison lists all keys every few minutes while the watch runs, and corrects what the watch missed. Its methods are
// called only by the goroutine that applies the watch's events.
type comparison struct {
	view *View
	next time.Time

	lists  sync.WaitGroup
	listed chan listing // nil while no list is being read
	result *listing     // complete; used once the watch has caught up with it
}

type listing struct {
	b        *builder
	revision int64
	err      error
}

// advance starts, waits for, or finishes a comparison.
func (c *comparison) advance(ctx context.Context) {
	select {
	case l := <-c.listed:
		c.listed, c.result = nil, &l
	default:
	}
	switch l := c.result; {
	case l == nil:
		if c.listed == nil && !time.Now().Before(c.next) {
			c.start(ctx)
		}
		return
	case l.err != nil:
		c.view.opt.Log.Warn().Err(l.err).Msg("the periodic list failed")
	case l.revision > c.view.Fresh().Revision:
		return // events up to that revision have yet to arrive
	default:
		c.finish(ctx, l.b)
	}
	c.result = nil
	c.view.setTouched(nil)
	c.next = time.Now().Add(c.view.opt.RelistEvery)
}

func (v *View) setTouched(t touched) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.touched = t
}

func (c *comparison) start(ctx context.Context) {
	c.view.setTouched(touched{})
	listed := make(chan listing, 1)
	c.listed = listed
	c.lists.Go(func() {
		b, revision, err := c.view.list(ctx, true)
		listed <- listing{b, revision, err}
	})
}

func (c *comparison) finish(ctx context.Context, b *builder) {
	v := c.view
	v.mu.Lock()
	changes, differed := v.reconcile(b, v.touched)
	v.stats.Resyncs[ReasonPeriodic]++
	v.stats.Corrected += uint64(differed)
	if differed > 0 {
		v.announce()
	}
	v.mu.Unlock()
	if differed > 0 {
		v.opt.Log.Error().Int("locks", differed).Msg("a list found changes of locks that the watch had missed")
	}
	v.reportListed(ctx, changes)
}
