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

// asleep returns a client on a machine that slept for this long: the wall clock went on, the monotonic clock and all
// timers stopped.
func asleep(t *testing.T, test func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration))) {
	var slept atomic.Int64
	o := mutex.Options{Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		test(t, f, locks, func(d time.Duration) { slept.Add(int64(d)) })
	})
}

func TestHolderWhoseMachineSleptStopsWhenItWakes(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration)) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
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
		f.away.Store(false)
		l.Unlock()
	})
}

func TestAliveAfterASleepThatWasTooLongIsALoss(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration)) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		before := read(t, f.operator, "a").AutoUnlockAt
		sleep(9 * time.Minute)
		if err := l.Alive(context.Background()); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("alive: %v", err)
		}
		if after := read(t, f.operator, "a").AutoUnlockAt; !after.Equal(before) {
			t.Errorf("it was extended until %v", after)
		}
		l.Unlock()
	})
}

func TestSleepIsTakenOffOnce(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration)) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		for range 5 {
			sleep(5 * time.Minute)
			time.Sleep(3 * time.Minute)
			alive(t, l)
		}
		last := time.Now()
		<-l.Lost()
		if d := time.Since(last); d != 9*time.Minute {
			t.Errorf("the context ended %v after the last alive", d)
		}
		l.Unlock()
	})
}

// A write by another process with the same uuid counts from before a sleep, and the next extension from after it.
func TestExtensionAfterASleepCountsBesideThatOfAnother(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration)) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(time.Second)
		sleep(5 * time.Minute)
		f.put("/mutexes/a/auto_unlock_at", metadata.FormatTime(time.Now().Add(15*time.Minute)))
		synctest.Wait()
		f.deaf.Store(true)
		time.Sleep(time.Minute)
		alive(t, l)
		<-l.Context().Done()
		if d, want := time.Since(start), 10*time.Minute+time.Second; d != want {
			t.Errorf("its context ended after %v, want %v", d, want)
		}
		l.Unlock()
	})
}
