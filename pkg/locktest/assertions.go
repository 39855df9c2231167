package locktest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Holder returns the record of a held lock, or nil if nobody holds it.
func (s *Server) Holder(name string) *metadata.FullRecord {
	s.t.Helper()
	record, _, err := s.store.ReadRecord(context.Background(), name)
	s.must(err)
	if record.Token == 0 {
		return nil
	}
	return &record
}

// Waiters returns the waiters for the lock, in the order in which they will get it.
func (s *Server) Waiters(name string) []metadata.Waiter {
	s.t.Helper()
	info, err := s.store.ReadLock(context.Background(), name)
	s.must(err)
	return info.Waiters
}

// AssertHeld fails the test if nobody holds the lock. It returns the holder's record, empty if there is none.
func (s *Server) AssertHeld(name string) metadata.FullRecord {
	s.t.Helper()
	holder := s.Holder(name)
	if holder == nil {
		s.t.Errorf("locktest: lock %q is free", name)
		return metadata.FullRecord{}
	}
	return *holder
}

// AssertFree fails the test if the lock is held.
func (s *Server) AssertFree(name string) {
	s.t.Helper()
	if holder := s.Holder(name); holder != nil {
		s.t.Errorf("locktest: %v%s", &mutex.HeldError{Name: name, Holder: *holder, At: time.Now()},
			indentedBacktrace(holder))
	}
}

// AssertNothingLeft fails the test if any lock is held or waited for: after a program has ended, none should be.
func (s *Server) AssertNothingLeft() {
	s.t.Helper()
	left := map[string]bool{}
	for _, kv := range s.get(s.layout.Prefix(), clientv3.WithKeysOnly()) {
		switch key := s.layout.Parse(string(kv.Key)); {
		case key.Kind == protocol.KindField && !left[key.Lock]:
			left[key.Lock] = true
			s.AssertFree(key.Lock)
		case key.Kind == protocol.KindTicket:
			s.t.Errorf("locktest: a waiter for lock %q is left", key.Lock)
		}
	}
}

func (s *Server) get(prefix string, opts ...clientv3.OpOption) []*mvccpb.KeyValue {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := s.others.Get(ctx, prefix, append(opts, clientv3.WithPrefix())...)
	s.must(err)
	return r.Kvs
}

// indentedBacktrace returns the backtrace of a holder, indented.
func indentedBacktrace(d *metadata.FullRecord) string {
	if d.Backtrace == "" {
		return ""
	}
	return "; at\n\t" + strings.ReplaceAll(strings.TrimSpace(d.Backtrace), "\n", "\n\t")
}

// AwaitHeld waits until the lock is held and returns its record. It fails the test if that takes too long.
func (s *Server) AwaitHeld(name string) metadata.FullRecord {
	s.t.Helper()
	var holder *metadata.FullRecord
	s.await(fmt.Sprintf("lock %q to be held", name), func() bool { holder = s.Holder(name); return holder != nil })
	return *holder
}

// AwaitFree waits until nobody holds the lock.
func (s *Server) AwaitFree(name string) {
	s.t.Helper()
	s.await(fmt.Sprintf("lock %q to be free", name), func() bool { return s.Holder(name) == nil })
}

// AwaitWaiters waits until the lock has exactly n waiters.
func (s *Server) AwaitWaiters(name string, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d waiters for lock %q", n, name), func() bool { return len(s.Waiters(name)) == n })
}

// await checks again whenever a key changes, so that in a bubble it does not make time pass.
func (s *Server) await(what string, condition func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.Background()), timeout)
	defer cancel()
	for r := range s.others.Watch(ctx, s.layout.Prefix(), clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if r.Err() != nil {
			s.t.Fatalf("locktest: %v", r.Err())
		}
		if condition() {
			return
		}
	}
	s.t.Fatalf("locktest: waited %v in vain for %s", timeout, what)
}
