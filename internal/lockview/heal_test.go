package lockview_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// compared lets a view compare itself with a list once, and expects no repair: the watch delivered everything.
func compared(t *testing.T, v *lockview.View, w *world) {
	t.Helper()
	before := v.Stats().Resyncs[lockview.ReasonPeriodic]
	for range 25 {
		w.do(put("/other", "")) // a sign of life
		time.Sleep(3 * time.Second)
	}
	synctest.Wait()
	s := v.Stats()
	if s.Resyncs[lockview.ReasonPeriodic] == before {
		t.Error("no list was read")
	}
	if s.Healed != 0 {
		t.Errorf("%d locks were healed of nothing", s.Healed)
	}
}

func TestALockWithTooManyKeysDoesNotCountAsHealed(t *testing.T) {
	for _, keys := range []int{100, 2000} {
		t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				attribute := func(n int) string { return layout.Field("a", fmt.Sprintf("f%04d", n)) }
				ops := lock(t, "a", uuid(1))
				for n := range keys {
					ops = append(ops, put(attribute(n), "x"))
				}
				w.do(ops...)
				v := run(t, w.source(), lockview.Options{RelistEvery: time.Minute})
				synctest.Wait()
				first := viewed(v, "a")
				compared(t, v, w)
				if viewed(v, "a") != first {
					t.Error("a record that did not change was replaced")
				}
				for _, c := range []struct {
					what string
					do   op
				}{
					{"a key that is not kept is written again", put(attribute(90), "y")},
					{"a key is added", put(layout.Field("a", "g"), "y")},
					{"one is added before those that are kept", put(layout.Field("a", "a"), "y")},
					{"one that is not kept is deleted", remove(attribute(91))},
					{"one that is kept is deleted", remove(attribute(1))},
				} {
					w.do(c.do)
					synctest.Wait()
					compared(t, v, w)
					if r := v.Lock("a"); len(r.Attributes) != metadata.MaxAttributes || r.Seen != first.Seen {
						t.Errorf("%s: %d attributes, %+v", c.what, len(r.Attributes), r.Seen)
					}
					exact := viewed(v, "a")
					if compared(t, v, w); viewed(v, "a") != exact {
						t.Errorf("%s: the second list replaced the record again", c.what)
					}
				}
				w.setDeaf(true)
				w.do(put(layout.Field("a", metadata.FieldAutoUnlockAt), "1553699999"))
				w.setDeaf(false)
				for range 25 {
					w.do(put("/other", ""))
					time.Sleep(3 * time.Second)
				}
				if got := metadata.FormatTime(v.Lock("a").AutoUnlockAt); got != "1553699999" || v.Stats().Healed != 1 {
					t.Errorf("what the watch did not tell: %s, %d healed", got, v.Stats().Healed)
				}
			})
		})
	}
}

func TestALockAmongTooManyForeignKeysDoesNotCountAsHealed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for i := range 10_001 {
			w.do(put(layout.Record(fmt.Sprintf("lock%d", i))+"not/ours", ""))
		}
		v := run(t, w.source(), lockview.Options{RelistEvery: time.Minute})
		synctest.Wait()
		w.do(lock(t, "new", uuid(1))...)
		synctest.Wait()
		if !v.Lock("new").Foreign() {
			t.Error("that there may be foreign keys in the range is not said")
		}
		compared(t, v, w)
		if r := v.Lock("new"); r.Problems != nil {
			t.Errorf("after a list that found none: %v", r.Problems)
		}
	})
}

// What somebody writes to a lock counts, however many attributes its record has: those are what is left out.
func TestALockWithTooManyAttributesIsAskedAndIdentified(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		ops := lock(t, "a", uuid(1))
		for i := range 3 * metadata.MaxAttributes {
			ops = append(ops, put(layout.Field("a", fmt.Sprintf("a%03d", i)), "x"))
		}
		w.do(ops...)
		v := run(t, w.source(), lockview.Options{})
		settle(t, v, w)
		hold := v.Lock("a")
		w.do(put(layout.Field("a", metadata.FieldAsked),
			protocol.Marshal(metadata.Request{UUID: hold.UUID, Token: hold.Token, By: "ann"})))
		w.do(put(layout.Field("a", metadata.FieldAcknowledged),
			protocol.Marshal(metadata.Acknowledgement{UUID: hold.UUID, Token: hold.Token, By: "bob"})))
		w.do(put(layout.Field("a", metadata.FieldPodUID), "5e9a2a3c"))
		settle(t, v, w)
		for _, source := range []string{"the watch", "a list"} {
			r := v.Lock("a")
			if r.Asked == nil || r.Asked.By != "ann" || r.Acknowledged == nil || r.Acknowledged.By != "bob" {
				t.Errorf("by %s: asked %+v, acknowledged %+v", source, r.Asked, r.Acknowledged)
			}
			if r.Process == nil || r.Process.PodUID != "5e9a2a3c" {
				t.Errorf("by %s: process %+v", source, r.Process)
			}
			v = run(t, w.source(), lockview.Options{})
			settle(t, v, w)
		}
	})
}
