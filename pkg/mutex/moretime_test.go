package mutex_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// give grants the holder of lock "a" more time, by an operator's clock that is ahead by this much.
func give(t testing.TB, f *fake, d, ahead time.Duration) {
	t.Helper()
	r := read(t, f.etcd, "a").Record
	_, err := lockstore.New(f.etcd, layout(t)).Perform(t.Context(), protocol.VerbExtend,
		protocol.ActionTarget{Hold: &r},
		protocol.Action{ID: rand.Text(), At: metadata.Time{Time: time.Now().Add(ahead)}, Actor: "ann", Source: "cli",
			Lock: "a", UUID: r.UUID, Token: r.Token, Reason: "the disk is slow", Seconds: int64(d / time.Second)})
	proctest.Must(t, err)
}

// endsAbout is like ends but allows for the rounding of deadlines to whole seconds.
func endsAbout(t testing.TB, l *mutex.Lock, after time.Duration) {
	t.Helper()
	<-l.Context().Done()
	if d := passed(); d < after || d > after+time.Second {
		t.Errorf("its context ended after %v, want %v", d, after)
	}
}

func TestHolderUsesGrantedTime(t *testing.T) {
	var told []mutex.MoreTimeGiven
	o := mutex.Options{Hooks: mutex.Hooks{MoreTimeGiven: func(e mutex.MoreTimeGiven) { told = append(told, e) }}}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := tenMinutes(t, locks)
		time.Sleep(5 * time.Minute)
		if l.MoreTime() != nil {
			t.Error("extended before anybody did")
		}
		give(t, f, 30*time.Minute, 0)
		synctest.Wait()
		if e := l.MoreTime(); e == nil || e.By != "ann" || e.Reason != "the disk is slow" ||
			e.Duration() != 30*time.Minute {
			t.Errorf("by %+v", e)
		}
		if len(told) != 1 || told[0].Lock != l || told[0].MoreTime.By != "ann" {
			t.Errorf("the hook got %+v", told)
		}
		if d := passed() + time.Until(l.Deadline()); d < 39*time.Minute || d > 39*time.Minute+time.Second {
			t.Errorf("its deadline is after %v", d)
		}
		endsAbout(t, l, 39*time.Minute)
	})
}

func TestGrantedTimeIgnoresTheOperatorsClock(t *testing.T) {
	bubbles(t, map[string]struct{ ahead, want time.Duration }{
		"it is right":                        {0, 39 * time.Minute},
		"it is behind":                       {-2 * time.Hour, 39 * time.Minute},
		"it is ahead, before the deadline":   {4 * time.Minute, 39 * time.Minute},
		"it is ahead, and past the deadline": {2 * time.Hour, 5*time.Minute + 29*time.Minute},
	}, func(t *testing.T, f *fake, locks *mutex.Client, c struct{ ahead, want time.Duration }) {
		l := tenMinutes(t, locks)
		time.Sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, c.ahead)
		endsAbout(t, l, c.want)
	})
}

func TestGrantedTimeIsNeverReduced(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		time.Sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		granted := read(t, f.etcd, "a")
		for i := range 7 {
			time.Sleep(4 * time.Minute)
			alive(t, l, "step")
			now := read(t, f.etcd, "a")
			if now.AutoUnlockAt.Before(granted.AutoUnlockAt) || now.AlertAt.Before(granted.AlertAt) {
				t.Errorf("step %d takes back: alert in %v, auto-unlock in %v", i, time.Until(now.AlertAt),
					time.Until(now.AutoUnlockAt))
			}
			if d := passed() + time.Until(l.Deadline()); d < 39*time.Minute || now.MoreTime == nil ||
				now.Alive == nil || !now.Alive.At.Equal(time.Now()) {
				t.Errorf("step %d: its deadline is after %v, %+v", i, d, now.Alive)
			}
		}
	})
}

// While a lock alerts, an operator moves the alert beyond the one that its holder would set next.
func TestGrantedAlertIsNotMovedBack(t *testing.T) {
	bubbles(t, map[string]bool{"seen": false, "seen late": true},
		func(t *testing.T, f *fake, locks *mutex.Client, deaf bool) {
			l := take(t, locks, "a", mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(10*time.Minute))
			time.Sleep(8 * time.Minute)
			f.deaf.Store(deaf)
			give(t, f, 5*time.Minute, 0)
			granted := read(t, f.etcd, "a").AlertAt
			time.Sleep(70 * time.Second)
			for range 3 {
				time.Sleep(time.Minute)
				alive(t, l)
				if now := read(t, f.etcd, "a").AlertAt; now.Before(granted) {
					t.Errorf("the alert is %v earlier than was granted", granted.Sub(now))
				}
			}
		})
}

// During granted time, the deadline in the record is later than any that the holder would write.
func TestHolderDisputesItsDeathDuringGrantedTime(t *testing.T) {
	bubbles(t, map[string][]mutex.Option{"by alive": nil, "by a heartbeat": {mutex.Heartbeat(3 * time.Hour)}},
		func(t *testing.T, f *fake, locks *mutex.Client, opts []mutex.Option) {
			l := take(t, locks, "a", append(opts, mutex.AutoUnlockAfter(10*time.Minute))...)
			time.Sleep(5*time.Minute + time.Second) // between two heartbeats
			give(t, f, time.Hour, 0)
			granted := read(t, f.etcd, "a").AutoUnlockAt
			death := metadata.Statement{Name: "a", UUID: l.UUID(), Token: l.Token(), Cause: metadata.CauseProcessEnded}
			death.Revision = f.put("/mutexes/.deaths/"+l.UUID(), protocol.Marshal(death))
			time.Sleep(5 * time.Minute)
			if opts == nil {
				alive(t, l, "at work")
			}
			now := read(t, f.etcd, "a")
			lockrecord.AttachStatements(&now.Record, &death, nil)
			if !now.AutoUnlockAt.Equal(granted) || !now.Disputed() {
				t.Errorf("disputed: %v, %+v, auto-unlock at %v", now.Disputed(), now.Alive, now.AutoUnlockAt)
			}
		})
}

func TestTimeIsGrantedWhileTheWatchIsLost(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		time.Sleep(5 * time.Minute)
		f.deaf.Store(true)
		give(t, f, 5*time.Minute, 0)
		give(t, f, 10*time.Minute, 0)
		endsAbout(t, l, 24*time.Minute)
	})
}

func TestMachineSleepCountsAgainstGrantedTime(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration)) {
		time.Sleep(time.Minute)
		sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		time.Sleep(time.Minute)
		sleep(10 * time.Minute)
		<-l.Context().Done()
		if d := passed(); d > 24*time.Minute+time.Second || d < 24*time.Minute-3*time.Second {
			t.Errorf("its context ended after %v, want 39m less the 15m of sleep", d)
		}
	})
}

func TestTimeGrantedBeforeAnAdoptionCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		r, err := locks.TryReserve(t.Context(), "a", "maintenance", 10*time.Minute)
		proctest.Must(t, err)
		give(t, f, 20*time.Minute, 0)
		l := adopt(t, locks, r.UUID, mutex.SafetyMargin(time.Minute))
		if l.MoreTime() == nil {
			t.Error("it does not know who granted the time")
		}
		time.Sleep(time.Minute)
		give(t, f, 10*time.Minute, 0)
		endsAbout(t, l, 39*time.Minute)
	})
}

func TestNoExtensionShortensTheTime(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		time.Sleep(time.Second)
		for _, value := range []string{metadata.FormatTime(time.Now().Add(time.Minute)), "soon", ""} {
			f.put("/mutexes/a/auto_unlock_at", value)
		}
		ends(t, l, 9*time.Minute)
	})
}

func TestHeartbeatKeepsGrantedTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(20*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(3*time.Hour))
		time.Sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		granted := read(t, f.etcd, "a")
		for passed() < 48*time.Minute {
			time.Sleep(time.Minute)
			now := read(t, f.etcd, "a")
			if now.AutoUnlockAt.Before(granted.AutoUnlockAt) || now.AlertAt.Before(granted.AlertAt) ||
				!now.AlertAt.After(time.Now()) {
				t.Errorf("after %v: alert in %v, auto-unlock in %v", passed(), time.Until(now.AlertAt),
					time.Until(now.AutoUnlockAt))
			}
		}
		time.Sleep(4 * time.Minute) // no progress for its own 20 minutes and the 30 that were given
		if now := read(t, f.etcd, "a"); now.AlertAt.After(time.Now()) || l.Context().Err() != nil {
			t.Errorf("the alert is put off by %v, %v", time.Until(now.AlertAt), context.Cause(l.Context()))
		}
	})
}

// asleep is like holding, on a machine that can sleep: its wall clock advances, its monotonic clock and timers stop.
func asleep(t *testing.T, test func(t *testing.T, f *fake, l *mutex.Lock, sleep func(time.Duration))) {
	t.Helper()
	var slept atomic.Int64
	o := mutex.Options{Now: func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		test(t, f, tenMinutes(t, locks), func(d time.Duration) { slept.Add(int64(d)) })
	})
}

func TestHolderStopsWhenItsMachineWakes(t *testing.T) {
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

func TestAliveAfterTooLongASleepIsALoss(t *testing.T) {
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

func TestSleepIsSubtractedOnce(t *testing.T) {
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
func TestExtensionAfterASleepCombinesWithAnother(t *testing.T) {
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
