package robustness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// newScene is a stage for one particular fault: nothing is broken at random, and the programs talk to etcd directly.
func newScene(t testing.TB, endpoints ...string) *stage {
	t.Helper()
	s := newStage(t, config{Seed: 1, Nodes: len(endpoints), World: plainWorld}, t.TempDir())
	t.Cleanup(s.wg.Wait)
	t.Cleanup(s.showLogs)
	s.given = endpoints
	s.direct = s.client(endpoints)
	return s
}

// showLogs shows the end of all logs when the test failed.
func (s *stage) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, file := range logs {
		if log, err := os.ReadFile(file); err == nil && s.t.Failed() {
			s.t.Logf("%s ends with:\n%s", filepath.Base(file), log[max(0, len(log)-4000):])
		}
	}
}

// programs starts two unlockers and the dashboard, and returns when the unlockers know the locks.
func (s *stage) programs(more ...string) {
	s.t.Helper()
	for range 2 {
		s.unlockers = append(s.unlockers, s.startUnlocker(1, more...))
	}
	s.startDash()
	for _, p := range s.unlockers {
		s.ready(p)
	}
}

func (s *stage) ready(unlocker *child) {
	s.t.Helper()
	s.until(unlocker.name+" to be ready", func(ctx context.Context) error {
		_, err := fetch(ctx, s.addrs[unlocker], "/readyz")
		return err
	})
}

// restartUnlocker replaces an unlocker by a new process.
func (s *stage) restartUnlocker(i int, more ...string) {
	s.t.Helper()
	s.unlockers[i].terminate(20 * time.Second)
	s.unlockers[i] = s.startUnlocker(1, more...)
	s.ready(s.unlockers[i])
}

// locker takes locks as programs in Go do, with a connection of its own.
func (s *stage) locker(owner string) *mutex.Client {
	s.t.Helper()
	c, err := mutex.New(s.client(s.given), mutex.Options{Owner: owner})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// stale takes a lock for a holder that dies at once.
func (s *stage) stale(lock string, life time.Duration) *byHandHold {
	s.t.Helper()
	ctx, cancel := timeout(40 * time.Second)
	defer cancel()
	h := (&keepers{layout: s.layout}).take(ctx, s.direct, lock, 0, life)
	if h == nil {
		s.t.Fatalf("%q could not be taken", lock)
	}
	return h
}

// wait queues for a lock, and returns when etcd has this number of tickets.
func (s *stage) wait(c *mutex.Client, lock string, place int) <-chan *mutex.Lock {
	s.t.Helper()
	got := make(chan *mutex.Lock, 1)
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	s.wg.Go(func() {
		if l, err := c.Lock(ctx, lock, mutex.AutoUnlockAfter(time.Minute)); err == nil {
			got <- l
		}
	})
	s.until("a ticket", func(context.Context) error {
		if n := len(s.read(s.layout.Queue(lock))) - 1; n < place { // and the tail
			return fmt.Errorf("%d tickets", n)
		}
		return nil
	})
	return got
}

// work makes holders work until the end, through this client, and returns when they hold their locks.
func (s *stage) work(etcd *clientv3.Client) {
	s.t.Helper()
	s.keepers = startKeepers(etcd, s.layout, s.Seed, 0)
	s.t.Cleanup(s.keepers.end)
	s.until("the keepers to hold their locks", func(context.Context) error {
		s.keepers.mu.Lock()
		defer s.keepers.mu.Unlock()
		if n := len(s.keepers.live); n < 4 {
			return fmt.Errorf("%d hold", n)
		}
		return nil
	})
}

// nobodyLost checks that no keeper has lost its lock so far.
func (s *stage) nobodyLost() {
	s.t.Helper()
	s.keepers.mu.Lock()
	defer s.keepers.mu.Unlock()
	for _, err := range s.keepers.problems {
		s.t.Error(err)
	}
}

// read reads keys until etcd answers.
func (s *stage) read(prefix string) (all []*mvccpb.KeyValue) {
	s.t.Helper()
	s.until("an answer of etcd", func(ctx context.Context) error {
		r, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix())
		if err == nil {
			all = r.Kvs
		}
		return err
	})
	return all
}

// tokens are the locks that are held and their tokens, as etcd has them.
func (s *stage) tokens() map[string]int64 {
	s.t.Helper()
	all := map[string]int64{}
	for _, kv := range s.read(prefix) {
		if k := s.layout.Parse(string(kv.Key)); k.Kind == protocol.KindField && k.ID == metadata.FieldUUID {
			all[k.Lock] = kv.CreateRevision
		}
	}
	return all
}

// allEndings are the notes about holds that were ended for their holders, by lock.
func (s *stage) allEndings() map[string][]metadata.Ending {
	s.t.Helper()
	all := map[string][]metadata.Ending{}
	for _, kv := range s.read(s.layout.Histories()) {
		e, err := protocol.Unmarshal[metadata.Ending](kv.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		all[e.Lock] = append(all[e.Lock], e)
	}
	return all
}

// removedOnce checks that these locks were removed, each once and not before a time, and that nothing else was.
func (s *stage) removedOnce(from time.Time, locks ...string) {
	s.t.Helper()
	all := s.allEndings()
	for _, lock := range locks {
		if e := all[lock]; len(e) != 1 || e[0].Ended != metadata.EndedAutoUnlocked || e[0].EndedAt.Before(from) {
			s.t.Errorf("%q has these endings, wanted one, not before %v: %+v", lock, from, e)
		}
		delete(all, lock)
	}
	if len(all) > 0 {
		s.t.Errorf("removed without a reason: %+v", all)
	}
}

// gone waits until nobody holds these locks.
func (s *stage) gone(locks ...string) {
	s.t.Helper()
	s.until("the removal of "+strings.Join(locks, ", "), func(context.Context) error {
		held := s.tokens()
		for _, lock := range locks {
			if _, still := held[lock]; still {
				return fmt.Errorf("%q is still held", lock)
			}
		}
		return nil
	})
}

// shown waits until the dashboard shows what etcd has.
func (s *stage) shown() {
	s.t.Helper()
	s.sameView(func(rule, format string, args ...any) {
		s.t.Helper()
		s.t.Errorf(rule+": "+format, args...)
	})
}

// heldBack waits until an unlocker reports that a rule holds back this many removals.
func (s *stage) heldBack(unlocker *child, rule staleness.Rule, locks float64) {
	s.t.Helper()
	s.metric(unlocker, fmt.Sprintf("unlocker_removal_held_back{reason=%q}", rule), locks)
}

// metric waits until a metric of an unlocker has this value.
func (s *stage) metric(unlocker *child, name string, want float64) {
	s.t.Helper()
	s.until(unlocker.name+" to show "+name, func(ctx context.Context) error {
		body, err := fetch(ctx, s.addrs[unlocker], "/metrics")
		if err != nil {
			return err
		}
		if value, _ := sample(string(body), name); value != want {
			return fmt.Errorf("it is %v, wanted %v", value, want)
		}
		return nil
	})
}

// says reports whether an unlocker wrote this into its log.
func says(t testing.TB, p *child, text string) bool {
	t.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(log), text)
}

// lostFor waits until a holder learns that it lost its lock, and returns why.
func lostFor(t testing.TB, l *mutex.Lock) *mutex.LostError {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(40 * time.Second):
		t.Fatalf("the holder of %q does not learn that it lost it", l.Name())
	}
	lost, is := errors.AsType[*mutex.LostError](context.Cause(l.Context()))
	if !is {
		t.Fatalf("%q ended with %v", l.Name(), context.Cause(l.Context()))
	}
	return lost
}
