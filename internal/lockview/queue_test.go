package lockview_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/lockview"
)

func TestHoldersDoNotWait(t *testing.T) {
	w := newWorld()
	w.do(put(layout.Ticket("a", uuid(1)), `{"holding":true}`), put(layout.Ticket("a", uuid(2)), `{}`),
		put(layout.Tail("a"), uuid(2)))
	v := run(t, w.source(), lockview.Options{})
	settle(t, v, w)
	if waiters := v.Waiters("a"); len(waiters) != 1 || waiters[0].ID != uuid(2) {
		t.Errorf("listed: %+v", waiters)
	}
	w.do(put(layout.Ticket("a", uuid(2)), `{"holding":true}`), put(layout.Ticket("b", uuid(3)), `{}`))
	settle(t, v, w)
	if queues := v.Queues(); len(queues) != 1 || len(queues["b"]) != 1 {
		t.Errorf("after one of them got the lock: %+v", queues)
	}
	if sample, n := v.Foreign(); n != 0 {
		t.Errorf("foreign: %v", sample)
	}
}
