package etcdtest_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestSpacesOfASharedEtcdAreSeparate(t *testing.T) {
	ctx := t.Context()
	one, two := etcdtest.Shared(t), etcdtest.Shared(t)
	if one.Endpoint() != two.Endpoint() {
		t.Error("there are two of it")
	}
	mine := one.Client(t)
	etcdtest.Put(t, mine, "a", "1")
	lease, err := mine.Grant(ctx, 60)
	proctest.Must(t, err)
	for c, sees := range map[*clientv3.Client]bool{one.Client(t): true, two.Client(t): false} {
		leases, err := c.Leases(ctx)
		proctest.Must(t, err)
		if got := etcdtest.Count(t, c, "a") == 1; got != sees || (len(leases.Leases) == 1) != sees {
			t.Errorf("sees %v, leases %v, want %v", got, leases.Leases, sees)
		}
	}
	if _, err := mine.Revoke(ctx, lease.ID); err != nil {
		t.Error(err)
	}
}

// Nobody else notices a network that is meant to be slow and is not.
func TestDelayAppliesEachWay(t *testing.T) {
	p := etcdtest.NewProxy(t, etcdtest.Shared(t).Endpoint())
	c := etcdtest.Shared(t).Through(t, p.Endpoint())
	etcdtest.Put(t, c, "a", "on time")
	p.Delay(50 * time.Millisecond)
	start := time.Now()
	etcdtest.Put(t, c, "a", "late")
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("a round trip took %v with 50 ms of delay each way", took)
	}
}
