package mutex_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// locker is a Locker of the lock "a".
func locker(t testing.TB, c *mutex.Client, lost func(error)) sync.Locker {
	t.Helper()
	l, err := c.Locker(t.Context(), "a", lost)
	proctest.Must(t, err)
	return l
}

func notLost(t testing.TB) func(error) {
	return func(err error) { t.Errorf("lost: %v", err) }
}

// panicOf returns the error that f panics with.
func panicOf(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// lockerIsLost runs a test of a locked Locker that must report one loss.
func lockerIsLost(t *testing.T, test func(t *testing.T, q *fake, c *mutex.Client, l sync.Locker, told chan error)) {
	t.Helper()
	queue(t, func(t *testing.T, q *fake) {
		told := make(chan error, 10)
		c := q.locks()
		l := locker(t, c, func(err error) { told <- err })
		l.Lock()
		test(t, q, c, l, told)
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("reported again: %v", <-told)
		}
	})
}

func TestLockerReportsALossOnce(t *testing.T) {
	lockerIsLost(t, func(t *testing.T, q *fake, _ *mutex.Client, l sync.Locker, told chan error) {
		endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "it is stuck")
		lost := &mutex.LostError{}
		if err := <-told; !errors.As(err, &lost) || lost.Ending.Reason != "it is stuck" {
			t.Fatalf("reported %v", err)
		}
		others := make(chan bool) // of this process
		go func() {
			l.Lock()
			defer l.Unlock()
			close(others)
		}()
		time.Sleep(time.Hour)
		select {
		case <-others:
			t.Error("another goroutine got the Locker while one that lost the lock still has it")
		default:
		}
		l.Unlock()
		<-others
	})
}

func TestLockerReportsALossFoundByUnlock(t *testing.T) {
	lockerIsLost(t, func(t *testing.T, q *fake, _ *mutex.Client, l sync.Locker, told chan error) {
		endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "it is stuck") // which nobody watches yet
		l.Unlock()
		select {
		case err := <-told:
			if !errors.Is(err, mutex.ErrNotHeld) {
				t.Errorf("it told %v", err)
			}
		default:
			t.Error("Unlock returned before the loss was reported")
		}
	})
}

func TestLockerPanicsInsteadOfRunningCodeWithoutTheLock(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		q.cutShort = true
		c := q.locks()
		take(t, q.locks(), "a")
		l, err := c.Locker(within(t, time.Minute), "a", notLost(t))
		proctest.Must(t, err)
		if err := panicOf(l.Lock); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, mutex.ErrHeld) || !strings.Contains(err.Error(), `Locker of "a"`) {
			t.Errorf("it panicked with %v", err)
		}
		if err := panicOf(l.Unlock); err == nil || !strings.Contains(err.Error(), "not locked") {
			t.Errorf("Unlock panicked with %v", err)
		}
		if err := panicOf(l.Lock); !errors.Is(err, context.DeadlineExceeded) { // as before, and does not block
			t.Errorf("it panicked with %v", err)
		}
		time.AfterFunc(time.Minute, func() { _ = c.Close() })
		if err := panicOf(locker(t, c, notLost(t)).Lock); !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("it panicked with %v", err)
		}
	})
}

func TestLockerWaitsThroughAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := locker(t, locks, notLost(t))
		f.away.Store(true)
		time.AfterFunc(time.Hour, func() { f.away.Store(false) })
		l.Lock()
		if read(t, f.etcd, "a").Token == 0 {
			t.Error("it does not hold the lock")
		}
		l.Unlock()
	})
}

func TestLockerReportsAClosedClient(t *testing.T) {
	lockerIsLost(t, func(t *testing.T, _ *fake, c *mutex.Client, l sync.Locker, told chan error) {
		proctest.Must(t, c.Close())
		if err := <-told; !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("it told %v", err)
		}
		l.Unlock()
	})
}
