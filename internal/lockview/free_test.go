package lockview_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// freed compares the locks that the view reports as free with the expected ones.
func freed(t *testing.T, v *lockview.View, what string, want map[string]time.Duration) {
	t.Helper()
	synctest.Wait()
	if got, _, synced := v.Free(); !maps.Equal(got, want) || !synced {
		t.Errorf("%s: free are %v, want %v; synced: %v", what, got, want, synced)
	}
}

func TestLockIsFreeBetweenHolds(t *testing.T) {
	followed(t, func(t *testing.T, w *world, v *lockview.View, _ *died) {
		none := map[string]time.Duration{}
		freed(t, v, "held, and nobody waits", none)
		w.do(put(layout.Ticket("a", uuid(7)), `{}`))
		freed(t, v, "held", none)
		time.Sleep(time.Second)
		w.do(removeAll(layout.Record("b")))
		freed(t, v, "free, and nobody waits", none)
		w.do(removeAll(layout.Record("a")))
		freed(t, v, "released", map[string]time.Duration{"a": time.Second})
		time.Sleep(time.Second)
		w.do(put(layout.Ticket("a", uuid(8)), `{}`), put(layout.Ticket("b", uuid(9)), `{}`))
		both := map[string]time.Duration{"a": time.Second, "b": 2 * time.Second}
		freed(t, v, "a second waiter, and one of another lock", both)
		w.do(remove(layout.Ticket("a", uuid(7))))
		freed(t, v, "the first one gave up", both)
		time.Sleep(3 * time.Minute)
		w.do(put(layout.Unlocker("eu-1"), `{}`)) // a sign of life
		freed(t, v, "compared", both)
		w.cut()
		w.do(put(layout.Ticket("c", uuid(10)), `{}`))
		settle(t, v, w)
		got, since, _ := v.Free()
		if got["a"] != time.Second || got["b"] != 2*time.Second || got["c"] < 3*time.Minute || since < got["c"] {
			t.Errorf("after an interruption: %v, followed since %v", got, since)
		}
		w.do(lock(t, "a", uuid(8))...)
		w.do(put(layout.Ticket("a", uuid(8)), `{"holding":true}`), remove(layout.Ticket("b", uuid(9))),
			remove(layout.Ticket("c", uuid(10))))
		freed(t, v, "taken, and left", none)
	})
}

func TestLockIsNotFreeWhile(t *testing.T) {
	delay := func(lock string) op {
		return put(layout.Delay(lock), protocol.Marshal(metadata.LockDelay{Name: lock, Seconds: 30}))
	}
	for _, c := range []struct {
		what string
		keep func(t *testing.T) []op
		end  op
		free bool
	}{
		{"a holder", func(t *testing.T) []op { return lock(t, "q", uuid(3)) }, removeAll(layout.Record("q")), false},
		{"a reader", func(t *testing.T) []op { return lock(t, "q#2", uuid(3)) }, removeAll(layout.Record("q#2")),
			false},
		{"a permit after other names", func(t *testing.T) []op {
			return slices.Concat(lock(t, "q#1st", uuid(4)), lock(t, "q#2", uuid(3)))
		}, removeAll(layout.Record("q#2")), false},
		{"a lock delay", func(*testing.T) []op { return []op{delay("q")} }, remove(layout.Delay("q")), false},
		{"the delay of a share", func(*testing.T) []op { return []op{delay("q#3")} }, remove(layout.Delay("q#3")),
			false},
		{"a lock whose name begins alike", func(t *testing.T) []op { return lock(t, "q#2nd", uuid(3)) },
			removeAll(layout.Record("q#2nd")), true},
		{"keys that are left over", func(*testing.T) []op { return []op{put(layout.Field("q", "alert_at"), "1")} },
			removeAll(layout.Record("q")), true},
		{"a delay of another lock", func(*testing.T) []op { return []op{delay("p")} }, remove(layout.Delay("p")), true},
	} {
		t.Run(c.what, func(t *testing.T) {
			followed(t, func(t *testing.T, w *world, v *lockview.View, _ *died) {
				want := map[string]time.Duration{}
				if c.free {
					want["q"] = time.Second
				}
				time.Sleep(time.Second)
				w.do(c.keep(t)...)
				w.do(put(layout.Ticket("q", uuid(5)), `{}`))
				freed(t, v, "kept", want)
				w.do(put(layout.Ticket("q", uuid(6)), `{}`))
				w.cut()
				synctest.Wait() // it is noticed
				settle(t, v, w)
				freed(t, v, "kept, by a list", want)
				time.Sleep(time.Second)
				w.do(c.end)
				synctest.Wait()
				if got, _, _ := v.Free(); len(got) != 1 || c.free && got["q"] != time.Second || got["q"] < time.Second {
					t.Errorf("after it ended: %v", got)
				}
			})
		})
	}
}

func TestViewHasLockDelays(t *testing.T) {
	followed(t, func(t *testing.T, w *world, v *lockview.View, _ *died) {
		want := func(what string, locks ...string) {
			t.Helper()
			got := v.Delays()
			if len(got) != len(locks) {
				t.Errorf("%s: %+v, want those of %v", what, got, locks)
				return
			}
			for i, d := range got {
				if d.Name != locks[i] {
					t.Errorf("%s: delay %d is %+v, want that of %s", what, i, d, locks[i])
				}
			}
		}
		delay := func(lock string) op {
			return put(layout.Delay(lock),
				protocol.Marshal(metadata.LockDelay{Name: lock, Owner: "billing", Seconds: 30,
					At: metadata.Time{Time: time.Unix(1_553_682_600, 0)}}))
		}
		want("at first")
		changed := v.Changed()
		w.do(delay("b"), removeAll(layout.Record("b")))
		w.do(put(layout.Delay("a"), "unreadable"))
		synctest.Wait()
		if v.Changed() == changed {
			t.Error("the acquisition was not reported")
		}
		want("two delays", "a", "b")
		if all := v.Delays(); !all[0].Unreadable || all[1].Owner != "billing" || all[1].Seconds != 30 ||
			all[1].Revision == 0 {
			t.Errorf("%+v", all)
		}
		if _, total, _ := v.Foreign(); total != 0 {
			t.Errorf("%d foreign keys", total)
		}
		w.cut() // what happens now is found by a list
		w.do(remove(layout.Delay("a")), delay("c"))
		settle(t, v, w)
		want("after an outage", "b", "c")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want("after a comparison", "b", "c")
		w.do(remove(layout.Delay("b")), remove(layout.Delay("c")))
		synctest.Wait()
		want("at last")
	})
}

func TestAcquisitionAfterAWaitIsReported(t *testing.T) {
	w := newWorld()
	w.do(put(layout.Ticket("a", uuid(2)), `{"uuid":"`+uuid(2)+`","since":"1773457200"}`),
		put(layout.Ticket("a", uuid(3)), `{"uuid":"`+uuid(3)+`","since":"1773457201"}`),
		put(layout.Ticket("c", uuid(5)), `{"uuid":"`+uuid(5)+`","since":"1773457202"}`))
	told := make(chan string, 10)
	v := run(t, w.source(), lockview.Options{OnAcquired: func(r *metadata.Record, w metadata.Waiter) {
		told <- r.Name + " " + r.UUID + " " + w.Since.UTC().Format(time.TimeOnly)
	}})
	settle(t, v, w)
	w.do(put(layout.Field("b", "uuid"), uuid(1))) // it did not wait
	w.do(put(layout.Field("a", "uuid"), uuid(2)), put(layout.Ticket("a", uuid(2)), `{"holding":true}`))
	w.do(put(layout.Field("a", "metadata"), `{}`)) // the same hold
	w.do(remove(layout.Ticket("a", uuid(3))))      // it gave up
	w.do(put(layout.Field("c", "uuid"), uuid(5)), put(layout.Ticket("c", uuid(5)), `{"holding":true}`))
	for _, want := range []string{"a " + uuid(2) + " 03:00:00", "c " + uuid(5) + " 03:00:02"} {
		if got := <-told; got != want {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
}
