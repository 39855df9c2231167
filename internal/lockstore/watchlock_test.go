package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// looks is a running watch of lock "a"; its channel has etcd's revision at each look.
func (w world) looks(ctx context.Context) (looks chan int64, done chan error) {
	looks = make(chan int64, 10_000)
	done = make(chan error, 1)
	go func() {
		done <- w.WatchLock(ctx, "a", func() bool {
			if resp, err := w.etcd.Get(ctx, "a"); err == nil {
				looks <- resp.Header.Revision
			}
			return false
		})
	}()
	return looks, done
}

// wantLook waits for a look at that revision, or a later one.
func wantLook(t *testing.T, looks <-chan int64, revision int64, what string) {
	t.Helper()
	etcdtest.Eventually(t, "a look after "+what, func() bool { return len(looks) > 0 && <-looks >= revision })
}

func TestWatchLockReportsChanges(t *testing.T) {
	w := start(t)
	w.put("connected", "")
	old := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancelCause(t.Context())
	looks, done := w.looks(ctx)
	wantLook(t, looks, 0, "the watch began")
	for what, key := range map[string]string{
		"its record": w.l.Field("a", "uuid"), "a share": w.l.Field("a#7", "uuid"), "its queue": w.l.Queue("a") + "1",
	} {
		wantLook(t, looks, w.put(key, "x"), "a put of "+what)
		wantLook(t, looks, w.deleteKey(key), "a deletion of "+what)
	}
	for i := range 200 {
		w.put(w.l.Field(fmt.Sprint("b", i), "uuid"), "x")
		w.put(w.l.Field(fmt.Sprint("a#x", i), "uuid"), "x")
	}
	before := len(looks)
	wantLook(t, looks, w.put(w.l.Field("a", "uuid"), "x"), "the changes of others")
	if before > 50 {
		t.Errorf("400 changes of other locks caused %d looks", before)
	}
	stop(errors.New("over"))
	if err := <-done; err == nil || err.Error() != "over" {
		t.Errorf("the watch ended with %v", err)
	}
	proctest.Eventually(t, "no goroutine is left", func() error { return goleak.Find(old) })
}

func TestWatchLockEndsOnceItsCallbackIsDone(t *testing.T) {
	w := parallel(t)
	n := 0
	if err := w.WatchLock(t.Context(), "a", func() bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%d looks, %v", n, err)
	}
}

func TestWatchLockSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	w := on(t, server.Client(t))
	ctx, stop := context.WithCancel(t.Context())
	looks, done := w.looks(ctx)
	wantLook(t, looks, 0, "the watch began")
	server.Stop()
	server.Restart(t)
	wantLook(t, looks, on(t, server.Client(t)).put(w.l.Field("a", "uuid"), "x"), "the outage")
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestWatchLockSurvivesACompaction(t *testing.T) {
	t.Parallel()
	p, w, other := behindProxy(t)
	looks, _ := w.looks(t.Context())
	wantLook(t, looks, 0, "the watch began")
	p.Cut()
	revision := other.put(w.l.Field("a", "uuid"), "x")
	other.compact(revision)
	p.Heal()
	wantLook(t, looks, revision, "the compaction")
}
