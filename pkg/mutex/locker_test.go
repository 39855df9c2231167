package mutex_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// locker is a Locker of the lock "a".
func locker(ctx context.Context, t testing.TB, c *mutex.Client, lost func(error), opts ...mutex.Option) sync.Locker {
	t.Helper()
	l, err := c.Locker(ctx, "a", lost, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func notLost(t testing.TB) func(error) {
	return func(err error) { t.Errorf("lost: %v", err) }
}

// panicOf is what f panics with.
func panicOf(t testing.TB, f func()) (err error) {
	t.Helper()
	defer func() {
		t.Helper()
		var isError bool
		if err, isError = recover().(error); !isError {
			t.Fatal("it did not panic with an error")
		}
	}()
	f()
	return nil
}

func TestLockerKeepsOthersOut(t *testing.T) {
	s := locktest.New(t)
	var lockers []sync.Locker
	for range 3 {
		c := s.Client(mutex.Options{Owner: "billing"})
		lockers = append(lockers, locker(t.Context(), t, c, notLost(t)))
	}
	inside := 0 // the race detector watches it, too
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			l := lockers[i%len(lockers)]
			for range 5 {
				l.Lock()
				if inside++; inside != 1 {
					t.Errorf("%d are inside", inside)
				}
				inside--
				l.Unlock()
			}
		})
	}
	all.Wait()
	s.AssertNothingLeft()
}

func TestLockerTellsOnceThatTheLockWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		told := make(chan error, 10)
		l := locker(t.Context(), t, s.Client(mutex.Options{}), func(err error) { told <- err })
		l.Lock()
		s.ForceUnlock("a", "it is stuck")
		lost := &mutex.LostError{}
		if err := <-told; !errors.As(err, &lost) || lost.Ending.Why != "it is stuck" {
			t.Fatalf("it told %v", err)
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
			t.Error("another goroutine has the Locker beside the one that lost the lock")
		default:
		}
		l.Unlock()
		<-others
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("it told once more: %v", <-told)
		}
	})
}

func TestLockerTellsOfALossThatUnlockFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		told := make(chan error, 10)
		l := locker(t.Context(), t, s.Client(mutex.Options{}), func(err error) { told <- err })
		l.Lock()
		s.Cut()
		s.ForceUnlock("a", "it is stuck")
		go func() {
			time.Sleep(5 * time.Second)
			s.Heal()
		}()
		l.Unlock()
		select {
		case err := <-told:
			if !errors.Is(err, mutex.ErrNotHeld) {
				t.Errorf("it told %v", err)
			}
		default:
			t.Error("Unlock returned before the loss was told")
		}
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("it told once more: %v", <-told)
		}
	})
}

func TestLockerPanicsInsteadOfRunningCodeWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		c := s.Client(mutex.Options{})
		s.Hold("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l := locker(ctx, t, c, notLost(t))
		if err := panicOf(t, l.Lock); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, mutex.ErrHeld) || !strings.Contains(err.Error(), `Locker of "a"`) {
			t.Errorf("it panicked with %v", err)
		}
		if err := panicOf(t, l.Unlock); !strings.Contains(err.Error(), "not locked") {
			t.Errorf("Unlock panicked with %v", err)
		}
		if err := panicOf(t, l.Lock); !errors.Is(err, context.DeadlineExceeded) { // as before, and does not block
			t.Errorf("it panicked with %v", err)
		}

		other := locker(t.Context(), t, c, notLost(t))
		time.AfterFunc(time.Minute, func() { _ = c.Close() })
		if err := panicOf(t, other.Lock); !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("it panicked with %v", err)
		}
	})
}

func TestLockerWaitsThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		l := locker(t.Context(), t, s.Client(mutex.Options{}), notLost(t))
		s.Cut()
		time.AfterFunc(time.Hour, s.Heal)
		l.Lock()
		s.AssertHeld("a")
		l.Unlock()
		s.AssertNothingLeft()
	})
}

func TestLockerOfAClosedClientIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		c := s.Client(mutex.Options{})
		told := make(chan error, 10)
		l := locker(t.Context(), t, c, func(err error) { told <- err })
		l.Lock()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-told; !errors.Is(err, mutex.ErrClosed) {
			t.Errorf("it told %v", err)
		}
		l.Unlock()
		s.AssertNothingLeft()
	})
}
