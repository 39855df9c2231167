package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

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
	_, err := locks.TryLock(t.Context(), "billing/42")
	if held, ok := errors.AsType[*mutex.HeldError](err); !ok || !errors.Is(err, mutex.ErrHeld) ||
		!reflect.DeepEqual(held.Holder.Record, doc.Record) {
		t.Errorf("want the record in the error, got %+v", err)
	}
	unlock(t, l)
	unlock(t, l) // which does nothing
	wantEmpty(t, etcd)
}

func TestLockEndsWithItsContext(t *testing.T) {
	queues(t, map[string]mutex.Option{"in the queue": nil, "past it": mutex.WithoutQueue()},
		func(t *testing.T, q *fake, o mutex.Option) {
			l := take(t, q.locks(), "a")
			time.AfterFunc(time.Second, func() {
				if w := q.waiting(); o == nil && (len(w) != 1 || time.Until(w[0].TimeoutAt.Time) != 59*time.Second) {
					t.Errorf("the ticket does not say when it gives up: %+v", w)
				}
			})
			_, err := q.locks().Lock(within(t, time.Minute), "a", o)
			if held, ok := errors.AsType[*mutex.HeldError](err); !ok || held.Holder.UUID != l.UUID() {
				t.Errorf("want the holder, got %v", err)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(),
				`context deadline exceeded: lock "a" is held by billing on host-1`) {
				t.Errorf("want the context's error too, got %v", err)
			}
			if d := passed(); d != time.Minute {
				t.Errorf("it ended after %v", d)
			}
		})
}

func TestDoGivesBackHoweverItsFunctionEnds(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		locks := q.locks()
		ctx, cancel := context.WithCancel(context.Background())
		err := locks.Do(ctx, "a", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || err.Error() != "context canceled" {
			t.Errorf("want the error of the function alone, got %v", err)
		}
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		locks.Do(t.Context(), "a", func(context.Context) error { panic("out of cheese") })
	})
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
	queues(t, kindsThatQueue(), func(t *testing.T, q *fake, kind [2][]mutex.Option) {
		var log lines
		c := newClient(t, q.client(), log.options())
		first := take(t, q.locks(), "a", kind[0]...)
		const waiters = 50
		_, ended := queueUp(c, waiters, kind[0]...)
		time.Sleep(time.Second)
		other := q.wait(q.locks(), kind[0]...)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for range waiters {
			if err := <-ended; !errors.Is(err, mutex.ErrClosed) {
				t.Errorf("a wait ended with %v", err)
			}
		}
		if said, _ := log.with("WARN"); len(said) > 0 {
			t.Errorf("Close says %q", said)
		}
		if w := q.waiting(); len(w) != 1 || w[0].ID != other.ticket.ID {
			t.Errorf("waiting: %+v", w)
		}
		unlock(t, first)
		unlock(t, q.turn(other))
	})
}

func TestUnlockThatFailsGoesOnInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		f.away.Store(true)
		err := l.Unlock()
		if passed() != 15*time.Second || err == nil || !strings.Contains(err.Error(), `unlock "a": etcd did not answer`) {
			t.Errorf("after %v: %v", passed(), err)
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
		unlock(t, l)
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
		if err := l.Unlock(); !errors.Is(err, mutex.ErrNotHeld) || passed() != 5*time.Second {
			t.Errorf("unlock ended after %v with %v", passed(), err)
		}
	})
}
