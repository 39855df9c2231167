package lockview_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Whoever looks at a lock is in its record until the key goes, whether the watch or a list says so, and leaves nothing
// of the record changed.
func TestAnAcknowledgementComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.do(lock(t, "a", uuid(1))...)
		v := run(t, w.source(), lockview.Options{})
		settle(t, v, w)
		before := *v.Lock("a")
		key := layout.Field("a", metadata.FieldAcknowledged)
		value := protocol.Marshal(metadata.Acknowledgement{UUID: before.UUID, Token: before.Token, By: "ann"})
		w.do(put(key, value))
		settle(t, v, w)
		if a := v.Lock("a").Acknowledged; a == nil || a.By != "ann" || a.Revision != w.now() {
			t.Errorf("acknowledged: %+v", a)
		}
		w.do(remove(key))
		settle(t, v, w)
		if after := v.Lock("a"); after.Acknowledged != nil || after.Seen != before.Seen ||
			after.DeadlineRevision != before.DeadlineRevision {
			t.Errorf("after its end: %+v, before it %+v", after, before)
		}

		w.do(put(key, value))
		settle(t, v, w)
		w.cut() // the key goes while nobody watches
		w.do(remove(key))
		settle(t, v, w)
		if a := v.Lock("a").Acknowledged; a != nil {
			t.Errorf("after a list: %+v", a)
		}
		differ(t, "in the end", show(v), w.truth())
	})
}

// What somebody writes to a lock counts, however many attributes its record has: those are what is left out.
func TestALockWithTooManyAttributesIsAskedAndIdentified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
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
