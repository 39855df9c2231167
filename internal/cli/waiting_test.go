package cli

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestWaitIsReportedOnChangesAndEveryHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var said []time.Duration
		var last mutex.Waiting
		var away atomic.Bool
		r := &waitReporter{
			report: func(w mutex.Waiting) {
				said = append(said, time.Since(began))
				last = w
			},
			refresh: func(_ context.Context, w mutex.Waiting) (mutex.Waiting, error) {
				w.Holder.AutoUnlockAt = time.Now().Add(time.Minute)
				if away.Load() {
					return w, errors.New("etcd is away")
				}
				return w, nil
			},
			states: make(chan mutex.Waiting, 1),
		}
		ctx, stop := context.WithCancel(t.Context())
		go r.run(ctx)
		at := func(second int) {
			time.Sleep(time.Until(began.Add(time.Duration(second) * time.Second)))
			synctest.Wait()
		}
		r.update(mutex.Waiting{Position: 3})
		at(1)
		r.update(mutex.Waiting{Position: 2})
		r.update(mutex.Waiting{Position: 1})
		at(60)
		want := began.Add(33*time.Second + time.Minute)
		if !last.Holder.AutoUnlockAt.Equal(want) || last.Position != 1 {
			t.Errorf("renewed to %v at position %d, want %v at 1", last.Holder.AutoUnlockAt, last.Position, want)
		}
		away.Store(true)
		at(70)
		away.Store(false)
		at(100)
		stop()
		at(200)
		times := []time.Duration{0, 3 * time.Second, 33 * time.Second, 93 * time.Second}
		if !slices.Equal(said, times) {
			t.Errorf("reported after %v, want %v", said, times)
		}
	})
}

func TestLostLockOverridesTheCommandsStatus(t *testing.T) {
	for work, want := range map[error]int{nil: ExitLost, &statusError{status: 7}: ExitLost} {
		if got := status((&job{}).outcome(work, mutex.ErrNotHeld)); got != want {
			t.Errorf("after %v the status is %d, want %d", work, got, want)
		}
	}
}

func TestUnreadableHoldIsReportedAsUnchanged(t *testing.T) {
	err := (&operatorAction{}).outcome(t.Context(), nil, &metadata.Record{Name: "a"}, "ask", metadata.ErrChanged)
	if got := err.Error(); status(err) != ExitHeld || got != "nothing was done: a has changed meanwhile: look again" {
		t.Errorf("the status is %d: %s", status(err), got)
	}
}
