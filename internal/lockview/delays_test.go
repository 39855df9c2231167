package lockview_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestTheViewHasTheLockDelays(t *testing.T) {
	followed(t, func(t *testing.T, w *world, v *lockview.View, _ *died) {
		want := func(what string, locks ...string) {
			t.Helper()
			got := v.Delays()
			if len(got) != len(locks) {
				t.Errorf("%s: %+v, want those of %v", what, got, locks)
				return
			}
			for i, d := range got {
				if d.Lock != locks[i] || v.Delay(d.Lock) == nil {
					t.Errorf("%s: delay %d is %+v, want that of %s", what, i, d, locks[i])
				}
			}
		}
		delay := func(lock string) op {
			return put(layout.Delay(lock), protocol.Marshal(metadata.Delay{Lock: lock, Owner: "billing", Seconds: 30,
				At: metadata.Time{Time: time.Unix(1_553_682_600, 0)}}))
		}
		want("at first")
		changed := v.Changed()
		w.do(delay("b"), removeAll(layout.Record("b")))
		w.do(put(layout.Delay("a"), "unreadable"))
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		want("two delays", "a", "b")
		if a, b := v.Delay("a"), v.Delay("b"); !a.Unreadable || b.Owner != "billing" || b.Seconds != 30 ||
			b.Revision == 0 || v.Delay("c") != nil {
			t.Errorf("%+v, %+v", a, b)
		}
		if _, total := v.Foreign(); total != 0 {
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
