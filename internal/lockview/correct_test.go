package lockview_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// compared lets a view compare itself with a list once, and expects no repair: the watch delivered everything.
func compared(t *testing.T, v *lockview.View, w *world) {
	t.Helper()
	before := v.Stats().Resyncs[lockview.ReasonPeriodic]
	w.live(75 * time.Second)
	s := v.Stats()
	if s.Resyncs[lockview.ReasonPeriodic] == before {
		t.Error("no list was read")
	}
	if s.Corrected != 0 {
		t.Errorf("%d locks were corrected of nothing", s.Corrected)
	}
}

func TestLockWithTooManyKeysIsNotCorrected(t *testing.T) {
	for _, keys := range []int{100, 2000} {
		t.Run(fmt.Sprint(keys, " keys"), simulated(func(t *testing.T, w *world) {
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
				if r := v.Lock("a"); len(r.Attributes) != lockrecord.MaxAttributes || r.Seen != first.Seen {
					t.Errorf("%s: %d attributes, %+v", c.what, len(r.Attributes), r.Seen)
				}
				exact := viewed(v, "a")
				if compared(t, v, w); viewed(v, "a") != exact {
					t.Errorf("%s: the second list replaced the record again", c.what)
				}
			}
			w.setDeaf(true)
			w.do(put(layout.Field("a", lockrecord.FieldAutoUnlockAt), "1553699999"))
			w.setDeaf(false)
			w.live(75 * time.Second)
			if got := metadata.FormatTime(v.Lock("a").AutoUnlockAt); got != "1553699999" || v.Stats().Corrected != 1 {
				t.Errorf("what the watch did not tell: %s, %d corrected", got, v.Stats().Corrected)
			}
		}))
	}
}

func TestSurplusKeysThatWereRewrittenCount(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		for range 2 {
			var ops []op
			for n := range 100 {
				ops = append(ops, put(layout.Field("a", fmt.Sprintf("f%04d", n)), "x"))
			}
			w.do(ops...)
		}
		v := run(t, w.source(), lockview.Options{})
		synctest.Wait()
		large := func(p metadata.Problem) bool { return p.Field == "record" && p.Kind == metadata.ProblemTooLarge }
		if r := v.Lock("a"); !slices.ContainsFunc(r.Problems, large) {
			t.Errorf("problems: %v", r.Problems)
		}
	})
}

func TestForeignKeysAreSampledAndCounted(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "mine", uuid(1))...)
		for i := range 15_000 {
			w.do(put(layout.Record(fmt.Sprintf("lock%d", i))+"not/ours", ""))
		}
		v := run(t, w.source(), lockview.Options{RelistEvery: time.Minute})
		synctest.Wait()
		if sample, total, _ := v.Foreign(); total != 15_000 || len(sample) != 100 {
			t.Errorf("%d foreign keys, a sample of %d", total, len(sample))
		}
		w.do(lock(t, "lock1", uuid(2))...)    // one that is known to have a foreign key in its range
		w.do(lock(t, "lock9999", uuid(3))...) // one too many to be remembered
		w.do(lock(t, "new", uuid(4))...)      // one without, of which nobody knows before the next list
		w.do(put(layout.Record("mine")+"not/ours", ""))
		synctest.Wait()
		for _, name := range []string{"lock1", "lock9999", "new", "mine"} {
			if !v.Lock(name).HasForeignKeys() {
				t.Errorf("%s does not show that foreign keys may be in its range: %+v", name, v.Lock(name))
			}
		}
		w.do(remove(layout.Record("mine") + "not/ours"))
		compared(t, v, w)
		for _, name := range []string{"new", "mine"} {
			if r := v.Lock(name); r.Problems != nil {
				t.Errorf("%s has no foreign key in its range: %v", name, r.Problems)
			}
		}
		if _, total, _ := v.Foreign(); total != 15_000 {
			t.Errorf("%d foreign keys", total)
		}
	})
}
