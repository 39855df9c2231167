package mutex_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// asleep is holding on a machine that can sleep for so long: its wall clock goes on, its monotonic clock and all timers
// stop.
func asleep(t *testing.T, test func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration))) {
	t.Helper()
	var slept atomic.Int64
	o := mutex.Options{Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		test(t, f, tenMinutes(t, locks), func(d time.Duration) { slept.Add(int64(d)) })
	})
}

func TestHolderWhoseMachineSleptStopsWhenItWakes(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		time.Sleep(time.Minute)
		f.away.Store(true)
		sleep(8*time.Minute - time.Second)
		time.Sleep(500 * time.Millisecond)
		if l.Context().Err() != nil {
			t.Errorf("it ended before its time: %v", context.Cause(l.Context()))
		}
		woke := time.Now()
		sleep(time.Hour)
		<-l.Lost()
		if d := time.Since(woke); d > 5*time.Second {
			t.Errorf("the context ended %v after the machine woke", d)
		}
		lost, isLost := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
		if !isLost || lost.Certain {
			t.Errorf("the cause is %v, want an uncertain loss", lost)
		}
	})
}

func TestAliveAfterASleepThatWasTooLongIsALoss(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		before := read(t, f.etcd, "a").AutoUnlockAt
		sleep(9 * time.Minute)
		if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive: %v", err)
		}
		if after := read(t, f.etcd, "a").AutoUnlockAt; !after.Equal(before) {
			t.Errorf("it was extended until %v", after)
		}
	})
}

func TestSleepIsTakenOffOnce(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		for range 5 {
			sleep(5 * time.Minute)
			time.Sleep(3 * time.Minute)
			alive(t, l)
		}
		ends(t, l, (5*3+9)*time.Minute)
	})
}

// A write by another process with the same uuid counts from before a sleep, and the next extension from after it.
func TestExtensionAfterASleepCountsBesideThatOfAnother(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		time.Sleep(time.Second)
		sleep(5 * time.Minute)
		f.put("/mutexes/a/auto_unlock_at", metadata.FormatTime(time.Now().Add(15*time.Minute)))
		synctest.Wait()
		f.deaf.Store(true)
		time.Sleep(time.Minute)
		alive(t, l)
		ends(t, l, 10*time.Minute+time.Second)
	})
}
