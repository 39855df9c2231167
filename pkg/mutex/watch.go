package mutex

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// watchAfter is how long a hold must last to be watched. Most are shorter, and no lock is taken away that quickly:
	// a watch for each of them costs a tenth of all that 64 busy clients get done (BenchmarkUncontended). One watch on
	// the whole prefix would cost the holder nothing, but have every client of a cluster read the events of all locks
	// of all others.
	watchAfter = 100 * time.Millisecond

	// holderRecheck is how often a holder reads its record although no event came, in case a watch went silent or etcd
	// lost an event.
	holderRecheck = time.Minute
)

// prepare makes what a handle needs before anybody has it.
func (l *Lock) prepare() {
	l.lost = make(chan struct{})
	l.extension.mutex = make(chan struct{}, 1)
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.Background(), handleKey{}, l))
	l.watch, l.stop = context.WithCancel(context.Background())
}

// begin starts what runs as long as the hold does: its timer, its watch and its heartbeat.
func (l *Lock) begin() error {
	c := l.c
	c.holds.add(l.held.UUID, &l.site)

	l.mu.Lock() // the timer may fire before it is stored
	l.deadline.timer = time.AfterFunc(min(l.timeLeft(), watchAfter), l.due)
	l.detach = context.AfterFunc(c.ctx, func() { l.finish(ErrClosed) })
	l.mu.Unlock()
	if l.set.maximumHold > 0 {
		c.spawn(func() { l.beat(l.watch) })
	}
	if c.isClosed() {
		if !l.origin.adopted {
			l.Unlock()
		}
		return ErrClosed
	}
	return nil
}

// due runs when the hold is no longer a short one, then every sleepCheck, and at the local deadline, which an extension
// may have moved. One timer serves all, because a timer is much of what a short hold costs.
func (l *Lock) due() {
	l.mu.Lock()
	left := l.timeLeft()
	watch := !l.deadline.watched
	l.deadline.watched = true
	if left > 0 {
		l.deadline.timer.Reset(min(left, sleepCheck))
	}
	l.mu.Unlock()
	switch {
	case left <= 0:
		l.runOut()
	case watch:
		l.c.spawn(l.observe)
	}
}

// observe watches the hold until it is gone or the handle ends.
func (l *Lock) observe() {
	from, end := locktxn.Watched(l.c.layout, l.held.Lock)
	l.c.retry.Follow(l.watch, holderRecheck, func(events []*clientv3.Event) bool {
		if len(events) == 0 && l.awake() != nil {
			return true
		}
		timeout := holderRecheck / 3
		gone := l.goneBy(events)
		extended := l.learnFrom(events)
		if gone {
			timeout = noteTimeout
		} else if len(events) > 0 && !extended {
			return false
		}
		ctx, cancel := context.WithTimeout(l.watch, timeout)
		defer cancel()
		lost, err := l.verify(ctx)
		if err != nil && gone && l.err() == nil {
			lost = l.lostError()
		}
		if lost == nil {
			return false
		}
		if !l.releasedMeanwhile() {
			l.lose(lost)
		}
		return true
	}, etcdretry.Watched{Key: from, Options: []clientv3.OpOption{clientv3.WithRange(end)}})
}

// goneBy reports whether one of the events ended the hold. Events older than the hold say nothing: a watch that a slow
// member opens begins in the past.
func (l *Lock) goneBy(events []*clientv3.Event) bool {
	key := l.c.layout.Field(l.held.Lock, metadata.FieldUUID)
	for _, e := range events {
		if string(e.Kv.Key) == key && e.Kv.ModRevision > l.held.Token &&
			(e.Type == clientv3.EventTypeDelete || string(e.Kv.Value) != l.held.UUID) {
			return true
		}
	}
	return false
}
