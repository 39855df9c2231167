package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// live are holders that work throughout: whatever dies, none of them may lose its lock.
type live struct {
	stop  context.CancelFunc
	wg    sync.WaitGroup
	uuids []string

	mu       sync.Mutex
	problems []error
}

func startLive(t *testing.T, m *etcdtest.Members) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{stop: cancel}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	for i := range 2 {
		l.viaClient(t, ctx, m.Client(t), fmt.Sprint("library-", i))
		l.byHand(t, ctx, m.Client(t), fmt.Sprint("by-hand-", i))
	}
	return l
}

// library holds a lock as programs in Go do, extending it every half second.
func (l *live) viaClient(t *testing.T, ctx context.Context, etcd *clientv3.Client, name string) {
	t.Helper()
	c, err := mutex.New(etcd, mutex.Options{AttemptTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := c.Lock(t.Context(), name, mutex.AlertAfter(10*time.Second), mutex.AutoUnlockAfter(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l.uuids = append(l.uuids, lock.UUID())
	l.wg.Go(func() {
		defer c.Close()
		for ctx.Err() == nil {
			select {
			case <-lock.Lost():
				l.complain(fmt.Errorf("%s is lost: %w", name, context.Cause(lock.Context())))
				return
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			if err := lock.Alive(try, "working"); errors.Is(err, mutex.ErrNotHeld) {
				l.complain(fmt.Errorf("%s: %w", name, err))
			}
			cancel()
		}
		if err := lock.Unlock(); err != nil {
			l.complain(fmt.Errorf("unlock %s: %w", name, err))
		}
	})
}

// handTTL is shorter than the outages of the test: such a holder's deadline passes while it cannot do anything about
// it.
const handTTL = 3 * time.Second

// byHand holds a lock as a script does. It tries to extend every 300 ms and never gives up.
func (l *live) byHand(t *testing.T, ctx context.Context, etcd *clientv3.Client, name string) {
	t.Helper()
	id := plain(t, etcd, name, handTTL/2, handTTL)
	l.uuids = append(l.uuids, id)
	record := prefix + name + "/"
	l.wg.Go(func() {
		for ctx.Err() == nil {
			now := time.Now()
			try, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
			resp, err := etcd.Txn(try).
				If(clientv3.Compare(clientv3.Value(record+"uuid"), "=", id)).
				Then(clientv3.OpPut(record+"alert_at", metadata.FormatTime(now.Add(handTTL/2))),
					clientv3.OpPut(record+"auto_unlock_at", metadata.FormatTime(now.Add(handTTL)))).
				Commit()
			cancel()
			if err == nil && !resp.Succeeded {
				l.complain(fmt.Errorf("%s is lost", name))
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

func (l *live) complain(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, err)
}

// end ends the holders and reports what they complained about.
func (l *live) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	for _, err := range l.problems {
		t.Error(err)
	}
}
