//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestPool has workers of all clients that know semaphores take one of five permits each, 1000 times in all (150 in the
// short set), while one of them is killed again and again. An unlocker takes the permits of the dead. At no revision of
// etcd are more than five out.
func TestPool(t *testing.T) {
	t.Parallel()
	const limit, name = 5, "pool"
	rounds := int64(1000) // which take five minutes: each dead waiter keeps its place for ten seconds
	if testing.Short() {
		rounds = 150
	}
	w := newWorld(t)
	s := w.scene(t)
	s.unlocker()
	out := s.watchPermits(name)
	var all sync.WaitGroup
	var done, killed atomic.Int64
	names := map[string]bool{}
	for i, c := range findClients(t) {
		if !c.claims([]string{"semaphore"}) {
			continue
		}
		names[c.name] = true
		for worker := range 3 {
			all.Go(func() {
				d := s.open(c)
				for n := 1; done.Load() < rounds; n++ {
					w := want{more: permits(limit, 1), alert: 1, unlock: 4}
					if err := d.holds(name, w, func() { time.Sleep(time.Millisecond) }); err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
					if (n+i+7*worker)%20 == 0 { // each at another time
						d.begin(name, want{more: permits(limit, 1), alert: 1, unlock: 4})
						time.Sleep(20 * time.Millisecond)
						d.kill() // with the permit, or while it waits
						killed.Add(1)
						d = s.open(c)
					}
				}
			})
		}
	}
	all.Wait()
	most, taken := out()
	t.Logf("%d rounds by %v, %d killed; %d permits were taken, never more than %d out",
		done.Load(), names, killed.Load(), taken, most)
	if most > limit || int64(taken) < rounds {
		t.Errorf("%d permits of %d were out at once, %d were taken", most, limit, taken)
	}
}

// holds takes a lock, does its work and gives the lock back.
func (d *driver) holds(name string, w want, work func()) error {
	c := d.begin(name, w)
	a, err := c.outcome()
	var l *lock
	if err == nil {
		l, err = c.lock(a)
	}
	if err != nil {
		return err
	}
	work()
	a, err = d.send(request{"do": "release", "lock": l.number}).outcome()
	if err == nil && a.Error != "" && a.Error != "unavailable" {
		err = fmt.Errorf("%s: release: %s", d.client.name, a.line)
	}
	return err
}

// watchPermits counts the permits that are out at each revision. The result says how many there were at most, and how
// many were taken.
func (s *scene) watchPermits(name string) (count func() (most, taken int)) {
	ctx, stop := context.WithCancel(context.Background())
	from, end := s.layout.Shares(name)
	watch := s.etcd.Watch(ctx, from, clientv3.WithRange(end), clientv3.WithCreatedNotify())
	<-watch
	most, taken := 0, 0
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		out := map[string]bool{}
		for r := range watch {
			for _, e := range r.Events {
				key := string(e.Kv.Key)
				switch {
				case !strings.HasSuffix(key, "/uuid"):
				case e.Type == clientv3.EventTypeDelete:
					delete(out, key)
				default:
					out[key] = true
					taken++
					most = max(most, len(out))
				}
			}
		}
	}()
	return func() (int, int) {
		stop()
		<-counted
		return most, taken
	}
}
