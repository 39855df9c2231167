package lockview_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestWhoGetsALockAfterWaitingIsTold(t *testing.T) {
	w := newWorld()
	w.do(put(layout.Ticket("a", uuid(2)), `{"uuid":"`+uuid(2)+`","since":"1773457200"}`),
		put(layout.Ticket("a", uuid(3)), `{"uuid":"`+uuid(3)+`","since":"1773457201"}`),
		put(layout.Ticket("c", uuid(5)), `{"uuid":"`+uuid(5)+`","since":"1773457202"}`))
	told := make(chan string, 10)
	v := run(t, w.source(), lockview.Options{Taken: func(r *metadata.Record, w metadata.Waiter) {
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
