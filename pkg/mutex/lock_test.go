package mutex_test

import (
	"context"
	"errors"
	"fmt"
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
			lineInABubble(t, func(t *testing.T, q *line) {
				l := take(t, q.client(), "a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := q.client().Lock(ctx, "a", o)
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
		if read(t, f.operator, "a").UUID != l.UUID() {
			t.Error("close gave back a lock that nobody unlocked")
		}
		unlock(t, l)
	})
}
