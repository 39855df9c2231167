package lockview_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func placesOf(list []*metadata.Record) (places []string) {
	for _, r := range list {
		places = append(places, r.Name)
	}
	return places
}

func TestMisplacedRecordsAreShownButNotJudged(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "100%", uuid(1))...)
		w.do(put("/mutexes/100%/uuid", uuid(2)), put("/mutexes/100%/owner", "by-hand"),
			put("/mutexes/100%/auto_unlock_at", "1553682600"), put("/mutexes/50%/owner", "left over"))
		v := run(t, w.source(), lockview.Options{})
		settle(t, v, w)
		want := func(when string, want ...string) {
			t.Helper()
			if got := placesOf(v.RecordsWithMisplaced()); !slices.Equal(got, want) {
				t.Fatalf("%s: shown are %q, want %q", when, got, want)
			}
			if got := placesOf(v.Locks()); !slices.Equal(got, []string{"100%"}) {
				t.Fatalf("%s: the locks are %q", when, got)
			}
		}
		want("at the start", "/mutexes/100%", "100%")
		r := v.RecordsWithMisplaced()[0]
		if r.Owner != "by-hand" || !r.Malformed() || r.UUID != uuid(2) {
			t.Errorf("the record is %+v", r)
		}
		policy := staleness.Policy{DefaultAlertAfter: time.Second, DefaultAutoUnlockAfter: time.Second}
		if judged := staleness.Judge(r, policy,
			staleness.Moment{Wall: time.Now(), Mono: v.Clock() + time.Hour}); judged.State != metadata.StateMalformed ||
			!judged.ExpiresAt.IsZero() {
			t.Errorf("it is judged %+v", judged)
		}
		if again := v.RecordsWithMisplaced(); &again[0] != &v.RecordsWithMisplaced()[0] {
			t.Error("nothing changed, and it is another slice")
		}
		w.do(put("/mutexes/a%2fb/uuid", uuid(3)), put("/mutexes//uuid", uuid(4)))
		settle(t, v, w)
		want("while it watches", "/mutexes/", "/mutexes/100%", "/mutexes/a%2fb", "100%")
		first := v.RecordsWithMisplaced()[1].Seen
		w.cut() // so that it lists again
		w.do(put("/mutexes/.foreign", "x"))
		settle(t, v, w)
		want("after a list", "/mutexes/", "/mutexes/100%", "/mutexes/a%2fb", "100%")
		if v.RecordsWithMisplaced()[1].Seen != first {
			t.Errorf("a list made the record new: %v, before %v", v.RecordsWithMisplaced()[1].Seen, first)
		}
		w.do(removeAll("/mutexes/100%/"), removeAll("/mutexes/a%2fb/"), remove("/mutexes//uuid"))
		settle(t, v, w)
		want("after they were removed", "100%")
	})
}

func TestUnlockersAndMisplacedRecordsAreBounded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		v := run(t, w.source(), lockview.Options{})
		settle(t, v, w)
		for i := range 1100 {
			id := fmt.Sprint("u", i)
			w.do(put(layout.Unlocker(id), protocol.Marshal(metadata.Presence{ID: id, Revision: w.now(),
				Now: metadata.Time{Time: time.Now()}})), put(fmt.Sprintf("/mutexes/%d%%/uuid", i), uuid(1)))
		}
		settle(t, v, w)
		if unlockers, misplaced := len(v.Unlockers()), len(v.RecordsWithMisplaced()); unlockers != 1000 ||
			misplaced != 1000 {
			t.Errorf("%d unlockers and %d misplaced records are kept", unlockers, misplaced)
		}
	})
}
