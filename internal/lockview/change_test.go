package lockview_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Foreign writes into the range of a dead holder's lock must not keep it; writes of a live holder must, whatever its
// clock shows. Each change restarts an unlocker's warning.
func TestWritesThatKeepALock(t *testing.T) {
	field := func(name, value string) op { return put(layout.Field("a", name), value) }
	alertAt := func(later time.Duration) op {
		return field(lockrecord.FieldAlertAt, metadata.FormatTime(draft(uuid(1)).AlertAt.Add(later)))
	}
	unlockAt := func(later time.Duration) op {
		return field(lockrecord.FieldAutoUnlockAt, metadata.FormatTime(draft(uuid(1)).AutoUnlockAt.Add(later)))
	}
	foreign := layout.Record("a") + "invoice/alive"
	for name, c := range map[string]struct {
		writes []op // each in a revision of its own
		keeps  bool
	}{
		"a key that fits no layout":        {[]op{put(foreign, "x"), put(foreign, "y"), remove(foreign)}, false},
		"an attribute that comes and goes": {[]op{field("note", "x"), remove(layout.Field("a", "note"))}, false},
		"an acknowledgement, withdrawn": {[]op{field(lockrecord.FieldAcknowledged, "{}"),
			remove(layout.Field("a", lockrecord.FieldAcknowledged))}, false},
		"the deadlines that there are": {[]op{alertAt(0), unlockAt(0)}, false},
		"an earlier alert":             {[]op{alertAt(-time.Millisecond)}, true},
		"a later deadline":             {[]op{unlockAt(time.Millisecond)}, true},
		"another time of taking":       {[]op{field(lockrecord.FieldLockedAt, "1553682601")}, true},
		"a word that it is alive":      {[]op{field(lockrecord.FieldAlive, "1553682601 on it")}, true},
	} {
		t.Run(name, simulated(func(t *testing.T, w *world) {
			w.do(lock(t, "a", uuid(1))...)
			v := run(t, w.source(), lockview.Options{})
			for _, o := range c.writes {
				time.Sleep(time.Second)
				w.do(o)
				synctest.Wait()
			}
			if kept := v.Lock("a").Seen.Changed > 0; kept != c.keeps {
				t.Errorf("it counts as a change: %v", kept)
			}
		}))
	}
}
