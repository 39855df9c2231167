package mutex

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
)

// logger logs what cannot be returned to any caller.
type logger struct{ to *slog.Logger }

func (l logger) log(level slog.Level, message string, attributes ...slog.Attr) {
	l.to.LogAttrs(context.Background(), level, message, attributes...)
}

// background counts the waiting calls and the goroutines of a client, so that Close can wait for them.
type background struct {
	mu      sync.Mutex
	closing bool           // no more locks are taken
	closed  bool           // no more goroutines are started
	waiting sync.WaitGroup // calls that wait for a lock
	running sync.WaitGroup // goroutines of holds and cleanups
}

// beginWait counts a call that waits for a lock, until done is called. ok is false if the client is closed.
func (b *background) beginWait() (done func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return nil, false
	}
	b.waiting.Add(1)
	return b.waiting.Done, true
}

// spawn runs f in a goroutine that Close waits for, unless the client is closed.
func (b *background) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Go(f)
	return true
}

// beginClose refuses new waits and reports whether this call is the first.
func (b *background) beginClose() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.closing
	b.closing = true
	return first
}

// endWaits waits until no call waits for a lock any more, or ctx ends. After that no goroutine is started.
func (b *background) endWaits(ctx context.Context) {
	awaitAll(ctx, &b.waiting)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// awaitAll waits for the goroutines, until ctx ends.
func awaitAll(ctx context.Context, all *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

const (
	// maxCleanups bounds memory during long outages of etcd. The oldest are given up: their records are auto-unlocked.
	maxCleanups    = 10_000
	cleanupTimeout = 10 * time.Second // of one attempt at a cleanup

	// maxCleaners bounds how many run at a time: many waiters may give up at once while etcd is slow.
	maxCleaners = 8
)

// cleanupQueue has the requests that no caller waits for. They are repeated in the background, a few at a time, until
// etcd's answer is definite. There are goroutines only while there is work.
type cleanupQueue struct {
	logger
	background *background
	ctx        context.Context // ends when the client is closed

	mu       sync.Mutex
	waiting  []cleanup
	cleaners int           // goroutines, each with one cleanup
	idle     chan struct{} // closed when the last goroutine ends; nil when there is none
}

type cleanup struct {
	lock, uuid string                      // of the attempt
	until      time.Time                   // when it is given up
	run        func(context.Context) error // nil when the outcome is definite
}

// later runs a cleanup in the background until it succeeds, but makes no attempt after ttl.
func (q *cleanupQueue) later(lock, uuid string, ttl time.Duration, run func(context.Context) error) {
	do := cleanup{lock: lock, uuid: uuid, until: time.Now().Add(ttl), run: run}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxCleanups {
		q.giveUp(q.waiting[0], errors.New("too many requests without an answer"))
		q.waiting = q.waiting[1:]
	}
	q.waiting = append(q.waiting, do)
	if q.cleaners == maxCleaners {
		return
	}
	if !q.background.spawn(q.work) {
		if q.cleaners == 0 {
			q.giveUp(do, ErrClosed)
			q.waiting = nil
		}
		return
	}
	q.cleaners++
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
}

func (q *cleanupQueue) work() {
	failed := 0
	for do, ok := q.next(); ok; do, ok = q.next() {
		ctx, cancel := context.WithTimeout(q.ctx, cleanupTimeout)
		err := do.run(ctx)
		cancel()
		switch {
		case err == nil:
			q.log(slog.LevelDebug, "cleaned up", slog.String("lock", do.lock), slog.String("uuid", do.uuid))
			failed = 0
		case time.Now().After(do.until):
			q.giveUp(do, err)
		default:
			etcdretry.Sleep(q.ctx, etcdretry.Backoff(failed))
			failed++
			q.again(do)
		}
	}
}

func (q *cleanupQueue) giveUp(do cleanup, err error) {
	q.log(slog.LevelWarn, "not cleaned up: what is left will be auto-unlocked",
		slog.String("lock", do.lock), slog.String("uuid", do.uuid), slog.Any("error", err))
}

// next takes the oldest cleanup, or ends the goroutine.
func (q *cleanupQueue) next() (cleanup, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || q.ctx.Err() != nil {
		if q.cleaners--; q.cleaners == 0 {
			close(q.idle)
			q.idle = nil
		}
		return cleanup{}, false
	}
	do := q.waiting[0]
	q.waiting = q.waiting[1:]
	return do, true
}

// again puts a cleanup back at the end, so that one that fails does not delay the others.
func (q *cleanupQueue) again(do cleanup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, do)
}

// drain waits until no cleanup is left or ctx ends, and returns how many are left.
func (q *cleanupQueue) drain(ctx context.Context) int {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) + q.cleaners
}

// silentAfter is how long etcd must leave all requests of a client unanswered before that is logged.
const silentAfter = 3 * time.Second

// outageLog logs a period in which etcd answers no request of a client: once when it has lasted for a while, and once
// when it is over.
type outageLog struct {
	logger
	etcd *clientv3.Client

	mu     sync.Mutex
	since  time.Time // zero while etcd answers
	logged bool      // that it lasts
}

// unanswered notes that a request sent at this time was not answered.
func (s *outageLog) unanswered(sent time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = sent
	}
	lasts := time.Since(s.since)
	if s.logged || lasts < silentAfter {
		return
	}
	s.logged = true
	message := "etcd does not answer; requests are repeated"
	if conn := s.etcd.ActiveConnection(); conn != nil && conn.GetState() == connectivity.Ready {
		message = "etcd does not answer on a connection that is open; " +
			"without DialKeepAliveTime a dead one may stay open for a quarter of an hour"
	}
	endpoints := strings.Join(s.etcd.Endpoints(), ",")
	s.log(slog.LevelWarn, message, slog.String("endpoints", endpoints), slog.Duration("for", lasts),
		slog.Any("error", err))
}

func (s *outageLog) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged {
		s.log(slog.LevelInfo, "etcd answers again", slog.Duration("after", time.Since(s.since)))
	}
	s.since = time.Time{}
	s.logged = false
}
