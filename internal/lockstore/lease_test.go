package lockstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
)

// granted counts the leases that were granted, whose ids are 1, 2, 3 …
type granted struct {
	clientv3.Lease
	n clientv3.LeaseID
}

func (g *granted) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	g.n++
	return &clientv3.LeaseGrantResponse{ID: g.n}, nil
}

func TestLeasesAreGrantedAheadForTwoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &granted{}
		l := lockstore.NewLeases(g, 8*24*time.Hour, time.Hour)
		current := func(n int, want, grants clientv3.LeaseID) {
			t.Helper()
			if id, err := l.Current(n); err != nil || id != want || g.n != grants {
				t.Errorf("lease %d of %d, %v; want %d of %d", id, g.n, err, want, grants)
			}
		}
		l.Prepare()
		current(63, 1, 1)
		l.Prepare()
		current(1, 1, 1) // there was room, so nothing was granted ahead
		for range 3 {
			l.Prepare()
		}
		current(64, 2, 3)
		current(32, 3, 3)
		current(32, 3, 3)
		current(1, 4, 4) // and none is used for more than 64 keys
		current(63, 4, 4)
		l.Prepare()
		time.Sleep(time.Hour)
		current(1, 6, 6) // 5 is an hour old, as its keys would not live long enough
		current(63, 6, 6)
		l.Prepare()
		l.Discard(6)
		current(1, 8, 8) // 7 may be gone with it
	})
}
