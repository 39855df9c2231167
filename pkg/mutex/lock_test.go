package mutex_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestRecord(t *testing.T) {
	etcd, locks := onEtcd(t)
	l := take(t, locks, "billing/42", mutex.Purpose("monthly invoices"), mutex.Attribute("rows", 7))
	doc := read(t, etcd, "billing/42")
	if len(doc.Problems) > 0 || doc.UUID != l.UUID() || doc.Token != l.Token() || doc.Owner != "billing" ||
		doc.Hostname != "host-1" || doc.Purpose != "monthly invoices" || fmt.Sprint(doc.Attributes) != "map[rows:7]" {
		t.Errorf("the record is %+v", doc)
	}
	newest, _, _ := strings.Cut(doc.Backtrace, "\n")
	if !strings.Contains(newest, "/helpers_test.go:") ||
		!strings.HasSuffix(newest, " in github.com/clustermutex/unlocker/pkg/mutex_test.take") {
		t.Errorf("the newest frame is %q, want the caller of Lock", newest)
	}
	unlock(t, l)
	unlock(t, l) // which does nothing
	wantEmpty(t, etcd)
}

func TestTryLockTellsWhoHoldsIt(t *testing.T) {
	_, locks := onEtcd(t)
	l := take(t, locks, "a", mutex.Owner("report"), mutex.Purpose("close the books"),
		mutex.AlertAfter(10*time.Minute+time.Second), mutex.AutoUnlockAfter(2*time.Hour+time.Minute))
	defer l.Unlock()

	_, err := locks.TryLock(context.Background(), "a")
	held, ok := errors.AsType[*mutex.HeldError](err)
	if !ok || !errors.Is(err, mutex.ErrHeld) {
		t.Fatalf("want a HeldError, got %v", err)
	}
	if held.Holder.UUID != l.UUID() || held.Holder.Token != l.Token() || held.Holder.Owner != "report" {
		t.Errorf("the holder is %+v", held.Holder.Record)
	}
	for _, part := range []string{`lock "a" is held by report on host-1 (pid `,
		`, taken just now for "close the books"`,
		"alert in 10 minutes, auto-unlock in 2 hours"} {
		if !strings.Contains(justNow(err.Error()), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestLockEndsWithItsContext(t *testing.T) {
	for name, o := range map[string]mutex.Option{"in the queue": nil, "past it": mutex.WithoutQueue()} {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				l := take(t, q.locks(), "a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := q.locks().Lock(ctx, "a", o)
				if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != l.UUID() {
					t.Errorf("want the holder, got %v", err)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(),
					`context deadline exceeded: lock "a" is held by billing on host-1`) {
					t.Errorf("want the context's error too, got %v", err)
				}
				if d := time.Since(began); d != time.Minute {
					t.Errorf("it ended after %v", d)
				}
				unlock(t, l)
			})
		})
	}
}

func TestUnlockIgnoresTheEndOfTheCallersContext(t *testing.T) {
	etcd, locks := onEtcd(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := locks.Do(ctx, "a", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || err.Error() != "context canceled" {
		t.Errorf("want the error of the function alone, got %v", err)
	}
	wantEmpty(t, etcd)
}

func TestDoUnlocksWhenTheFunctionPanics(t *testing.T) {
	etcd, locks := onEtcd(t)
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
		wantEmpty(t, etcd)
	}()
	locks.Do(context.Background(), "a", func(context.Context) error { panic("out of cheese") })
}

func TestClosedClientTakesNoLocksAndKeepsThoseThatItHas(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		if _, err := locks.Lock(t.Context(), "b"); !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("lock after close: %v", err)
		}
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); cause != mutex.ErrClosed {
			t.Errorf("the hold's context ended with %v", cause)
		}
		if read(t, f.etcd, "a").UUID != l.UUID() {
			t.Error("close gave back a lock that nobody unlocked")
		}
		unlock(t, l)
	})
}

// Waiters leave the queue before the client closes, and leave nothing behind: no warning, no ticket, no lease.
func TestCloseWhileManyWait(t *testing.T) {
	t.Parallel()
	for name, kind := range kindsThatQueue() {
		t.Run(name, func(t *testing.T) {
			queue(t, func(t *testing.T, q *fake) {
				var log bytes.Buffer
				warnings := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})
				c := newClient(t, q.client(), mutex.Options{Logger: slog.New(warnings)})
				first := take(t, q.locks(), "a", kind[0]...)
				const waiters = 50
				ended := make(chan error, waiters)
				for range waiters {
					go func() { _, err := c.Lock(context.Background(), "a", kind[0]...); ended <- err }()
				}
				etcdtest.Eventually(t, "the queue", func() bool { return len(q.waiting()) == waiters })
				other := q.wait(q.locks(), kind[0]...)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				for range waiters {
					if err := <-ended; !errors.Is(err, mutex.ErrClosed) {
						t.Errorf("a wait ended with %v", err)
					}
				}
				if log.Len() > 0 {
					t.Errorf("Close says:\n%s", log.String())
				}
				if w := q.waiting(); len(w) != 1 || w[0].Owner != other.ticket.Owner {
					t.Errorf("waiting: %+v", w)
				}
				if _, err := c.Lock(context.Background(), "a"); !errors.Is(err, mutex.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				unlock(t, first)
				unlock(t, q.turn(other))
			})
		})
	}
}

func TestUnlockThatFailsGoesOnInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		start := time.Now()
		err := l.Unlock()
		if d := time.Since(start); d != 15*time.Second || err == nil {
			t.Errorf("after %v: %v", d, err)
		}
		if !strings.Contains(err.Error(), `unlock "a": etcd did not answer`) {
			t.Errorf("%v", err)
		}
		f.away.Store(false)
		time.Sleep(time.Minute)
		if doc := read(t, f.etcd, "a"); len(doc.Fields) > 0 {
			t.Error("the record stays")
		}
	})
}

func TestUnlockWhoseAnswerIsLostSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// The record was deleted by hand, without a note, or the release took effect and its answer was lost: nobody can tell.
func TestUnlockAfterTheTimeRanOutDoesNotSayThatItWasHeld(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Minute), mutex.AlertAfter(time.Minute))
		f.away.Store(true)
		<-l.Lost()
		time.AfterFunc(3*time.Second, func() {
			f.delete(mutex.DefaultPrefix)
			f.away.Store(false)
		})
		var lost *mutex.LostError
		if err := l.Unlock(); !errors.As(err, &lost) || lost.Certain {
			t.Errorf("unlock: %v", err)
		}
	})
}

func TestUnlockThatCannotLookWhoEndedTheHoldSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.loseAnswers.Store(1)
		time.AfterFunc(time.Second, func() { f.latency.Store(int64(time.Second)) }) // of the second sending
		time.AfterFunc(2500*time.Millisecond, func() { f.away.Store(true) })        // while it is under way
		if err := l.Unlock(); err == nil || errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("unlock: %v", err)
		}
	})
}

func TestUnlockThatHasToAskWhatHappenedTakesNoLongerForThat(t *testing.T) {
	bubbleWith(t, mutex.Options{RequestTimeout: 5 * time.Second}, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.delete(mutex.DefaultPrefix)
		f.latency.Store(int64(4 * time.Second))
		time.AfterFunc(time.Second, func() { f.away.Store(true) }) // the release is under way
		began := time.Now()
		err := l.Unlock()
		if took := time.Since(began); !errors.Is(err, mutex.ErrNotHeld) || took != 5*time.Second {
			t.Errorf("unlock ended after %v with %v", took, err)
		}
	})
}
