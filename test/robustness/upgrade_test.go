//go:build robustness

package robustness

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var older = flag.String("etcd-3.6", "", "path of an etcd 3.6")

// TestEtcdIsUpgradedUnderEverybody replaces the program of one member of etcd 3.6 after the other by 3.7, which is how
// etcd expects it done: members of both versions work together meanwhile, with what the older ones know.
func TestEtcdIsUpgradedUnderEverybody(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3, etcdtest.Program(*older))
	s := newScene(t, m.Endpoints()...)
	s.programs()
	s.work(s.client(s.given))
	s.versions(m, "3.6", 0)
	s.stillServed(s.client(s.given), "all old")
	m.Upgrade(0)
	m.WaitReady(t)
	s.versions(m, "3.6", 1)
	s.stillServed(s.client(s.given), "one new")
	s.sameLists(m)
	m.Upgrade(1)
	m.WaitReady(t)
	s.versions(m, "3.6", 2)
	s.sameLists(m)
	m.Upgrade(2)
	m.WaitReady(t)
	s.versions(m, "3.7", 3)
	s.stillServed(s.client(s.given), "all new")
	s.sameLists(m)
	s.nobodyLost()
	s.removedOnce(time.Time{}, "all old", "one new", "all new")
}

// versions waits until the cluster has this version, and expects this many members of 3.7.
func (s *stage) versions(m *etcdtest.Members, cluster string, upgraded int) {
	s.t.Helper()
	s.until("version "+cluster+" of the cluster", func(ctx context.Context) error {
		if v := version(s.t, m); !strings.HasPrefix(v, cluster+".") {
			return fmt.Errorf("it is %s", v)
		}
		n := 0
		for _, endpoint := range m.Endpoints() {
			status, err := s.direct.Status(ctx, endpoint)
			if err != nil {
				return err
			}
			if strings.HasPrefix(status.Version, "3.7.") {
				n++
			}
		}
		if n != upgraded {
			return fmt.Errorf("%d members are new", n)
		}
		return nil
	})
}

// sameLists expects every member to list the same locks to a reader.
func (s *stage) sameLists(m *etcdtest.Members) {
	s.t.Helper()
	for i := range s.Nodes {
		store := lockstore.New(m.ClientOf(s.t, i), s.layout)
		n := 0
		s.until(fmt.Sprintf("a list of member %d", i), func(ctx context.Context) error {
			n = 0
			_, err := store.List(ctx, func(kv protocol.KV) {
				if k := s.layout.Parse(kv.Key); k.Kind == protocol.KindField && k.ID == metadata.FieldUUID {
					n++
				}
			})
			return err
		})
		if want := len(s.tokens()); n != want {
			s.t.Errorf("member %d lists %d locks of %d", i, n, want)
		}
	}
}
