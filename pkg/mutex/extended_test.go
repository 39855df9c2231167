package mutex_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// give gives the holder of lock "a" more time, by an operator's clock that is ahead by this much.
func give(t testing.TB, f *fake, d, ahead time.Duration) {
	t.Helper()
	doc := read(t, f.operator, "a")
	now := time.Now().Add(ahead)
	alertAt, autoUnlockAt := protocol.MoreTime(&doc.Record, d, now)
	by := metadata.Extension{UUID: doc.UUID, Token: doc.Token, By: "ann", Source: "cli", Reason: "the disk is slow",
		At: metadata.Time{Time: now}, AutoUnlockAt: metadata.Time{Time: doc.AutoUnlockAt},
		Seconds: int64(d / time.Second)}
	txn := locktxn.Extend(layout(t), locktxn.Extension{Record: &doc.Record, AlertAt: metadata.FormatTime(alertAt),
		AutoUnlockAt: metadata.FormatTime(autoUnlockAt), By: protocol.Marshal(by),
		Audit: clientv3.OpPut("/mutexes/.audit/1-1", "{}")})
	if r, err := txn.Commit(t.Context(), f.operator); err != nil || !r.Succeeded {
		t.Fatalf("more time: %v, %v", r, err)
	}
}

// about reports whether two durations are equal, except for the rounding of deadlines to whole seconds.
func about(d, want time.Duration) bool { return d >= want && d <= want+time.Second }

func TestHolderCountsOnTheTimeItIsGiven(t *testing.T) {
	var told []mutex.GivenTime
	o := mutex.Options{Hooks: mutex.Hooks{GivenTime: func(e mutex.GivenTime) { told = append(told, e) }}}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(5 * time.Minute)
		if l.Extended() != nil {
			t.Error("extended before anybody did")
		}
		give(t, f, 30*time.Minute, 0)
		synctest.Wait()
		if e := l.Extended(); e == nil || e.By != "ann" || e.Reason != "the disk is slow" ||
			e.Given() != 30*time.Minute {
			t.Errorf("by %+v", e)
		}
		if len(told) != 1 || told[0].Hold != l || told[0].Extension.By != "ann" {
			t.Errorf("the hook was told %+v", told)
		}
		if d := l.Deadline().Sub(start); !about(d, 39*time.Minute) {
			t.Errorf("its deadline is after %v", d)
		}
		<-l.Context().Done()
		if d := time.Since(start); !about(d, 39*time.Minute) {
			t.Errorf("its context ended after %v", d)
		}
		l.Unlock()
	})
}

func TestOperatorsClockDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct{ ahead, want time.Duration }{
		"it is right":                        {0, 39 * time.Minute},
		"it is behind":                       {-2 * time.Hour, 39 * time.Minute},
		"it is ahead, before the deadline":   {4 * time.Minute, 39 * time.Minute},
		"it is ahead, and past the deadline": {2 * time.Hour, 5*time.Minute + 29*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				start := time.Now()
				l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
				time.Sleep(5 * time.Minute)
				give(t, f, 30*time.Minute, c.ahead)
				<-l.Context().Done()
				if d := time.Since(start); !about(d, c.want) {
					t.Errorf("its context ended after %v, want %v", d, c.want)
				}
				l.Unlock()
			})
		})
	}
}

func TestTimeThatWasGivenIsNotTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(10*time.Minute),
			mutex.SafetyMargin(time.Minute))
		time.Sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		granted := read(t, f.operator, "a")
		for i := range 7 {
			time.Sleep(4 * time.Minute)
			alive(t, l, "step")
			now := read(t, f.operator, "a")
			if now.AutoUnlockAt.Before(granted.AutoUnlockAt) || now.AlertAt.Before(granted.AlertAt) {
				t.Errorf("step %d takes back: alert %v, auto-unlock %v", i, now.AlertAt.Sub(start),
					now.AutoUnlockAt.Sub(start))
			}
			if now.Alive == nil || !now.Alive.At.Equal(time.Now()) || now.Extended == nil {
				t.Errorf("step %d: %+v", i, now.Alive)
			}
			if d := l.Deadline().Sub(start); d < 39*time.Minute {
				t.Errorf("step %d: its deadline is after %v", i, d)
			}
		}
		l.Unlock()
	})
}

// While a lock alerts, an operator moves the alert beyond the one that its holder would set next.
func TestAlertThatWasGrantedIsNotMovedBack(t *testing.T) {
	for name, deaf := range map[string]bool{"seen": false, "seen late": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				l := take(t, locks, "a", mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(10*time.Minute))
				time.Sleep(8 * time.Minute)
				f.deaf.Store(deaf)
				give(t, f, 5*time.Minute, 0)
				granted := read(t, f.operator, "a").AlertAt
				time.Sleep(70 * time.Second)
				for range 3 {
					time.Sleep(time.Minute)
					alive(t, l)
					if now := read(t, f.operator, "a").AlertAt; now.Before(granted) {
						t.Errorf("the alert is %v earlier than was granted", granted.Sub(now))
					}
				}
				l.Unlock()
			})
		})
	}
}

// While the time that was given lasts, the deadline in the record is later than any that the holder would write.
func TestHolderDisputesItsDeathWhileItHasTimeThatWasGiven(t *testing.T) {
	for name, opts := range map[string][]mutex.Option{"by alive": nil,
		"by a heartbeat": {mutex.Heartbeat(3 * time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				l := take(t, locks, "a", append(opts, mutex.AutoUnlockAfter(10*time.Minute))...)
				time.Sleep(5*time.Minute + time.Second) // between two heartbeats
				give(t, f, time.Hour, 0)
				granted := read(t, f.operator, "a").AutoUnlockAt
				death := metadata.Statement{Lock: "a", UUID: l.UUID(), Token: l.Token(),
					Cause: metadata.CauseProcessEnded}
				death.Revision = f.put("/mutexes/.deaths/"+l.UUID(), protocol.Marshal(death))
				time.Sleep(5 * time.Minute)
				if opts == nil {
					alive(t, l, "at work")
				}
				now := read(t, f.operator, "a")
				now.Heed(&death, nil)
				if !now.AutoUnlockAt.Equal(granted) || !now.Disputed() {
					t.Errorf("disputed: %v, %+v, auto-unlock at %v", now.Disputed(), now.Alive, now.AutoUnlockAt)
				}
				unlock(t, l)
			})
		})
	}
}

func TestTimeIsGivenWhileTheWatchIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(5 * time.Minute)
		f.deaf.Store(true)
		give(t, f, 5*time.Minute, 0)
		give(t, f, 10*time.Minute, 0)
		<-l.Context().Done()
		if d := time.Since(start); !about(d, 24*time.Minute) {
			t.Errorf("its context ended after %v", d)
		}
		l.Unlock()
	})
}

func TestSleepOfTheMachineComesOffTheTimeThatWasGiven(t *testing.T) {
	asleep(t, func(t *testing.T, f *fake, locks *mutex.Client, sleep func(time.Duration)) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(time.Minute)
		sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		time.Sleep(time.Minute)
		sleep(10 * time.Minute)
		<-l.Context().Done()
		if d := time.Since(start); d > 24*time.Minute+time.Second || d < 24*time.Minute-3*time.Second {
			t.Errorf("its context ended after %v, want 39m less the 15m of sleep", d)
		}
		l.Unlock()
	})
}

func TestTimeGivenBeforeAnAdoptionCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		r, err := locks.TryReserve(t.Context(), "a", "maintenance", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		give(t, f, 20*time.Minute, 0)
		l, err := locks.Adopt(t.Context(), r.Lock, r.UUID, mutex.SafetyMargin(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if l.Extended() == nil {
			t.Error("it does not know who gave it time")
		}
		time.Sleep(time.Minute)
		give(t, f, 10*time.Minute, 0)
		<-l.Context().Done()
		if d := time.Since(start); !about(d, 39*time.Minute) {
			t.Errorf("its context ended after %v", d)
		}
		l.Unlock()
	})
}

func TestNobodyShortensTheTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AutoUnlockAfter(10*time.Minute), mutex.SafetyMargin(time.Minute))
		time.Sleep(time.Second)
		for _, value := range []string{metadata.FormatTime(start.Add(time.Minute)), "soon", ""} {
			f.put("/mutexes/a/auto_unlock_at", value)
		}
		<-l.Context().Done()
		if d := time.Since(start); d != 9*time.Minute {
			t.Errorf("its context ended after %v", d)
		}
		l.Unlock()
	})
}

func TestHeartbeatKeepsWhatWasGiven(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		start := time.Now()
		l := take(t, locks, "a", mutex.AlertAfter(20*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(3*time.Hour))
		time.Sleep(5 * time.Minute)
		give(t, f, 30*time.Minute, 0)
		granted := read(t, f.operator, "a")
		for time.Since(start) < 48*time.Minute {
			time.Sleep(time.Minute)
			now := read(t, f.operator, "a")
			if now.AutoUnlockAt.Before(granted.AutoUnlockAt) || now.AlertAt.Before(granted.AlertAt) ||
				!now.AlertAt.After(time.Now()) {
				t.Errorf("after %v: alert after %v, auto-unlock after %v", time.Since(start), now.AlertAt.Sub(start),
					now.AutoUnlockAt.Sub(start))
			}
		}
		time.Sleep(4 * time.Minute) // no progress for its own 20 minutes and the 30 that were given
		if now := read(t, f.operator, "a"); now.AlertAt.After(time.Now()) || l.Context().Err() != nil {
			t.Errorf("the alert is put off until %v, %v", now.AlertAt.Sub(start), context.Cause(l.Context()))
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
