package etcdmemory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestKeysLiveAsLongAsTheirLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcdmemory.New()
		holder := connect(t, s)
		other := connect(t, s)
		lease, err := holder.Client().Grant(t.Context(), 10)
		proctest.Must(t, err)
		if _, err := holder.Client().Put(t.Context(), "a", "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		alive, err := holder.Client().KeepAlive(t.Context(), lease.ID)
		proctest.Must(t, err)
		exists := func(when string, want int64) {
			t.Helper()
			if got := etcdtest.Count(t, other.Client(), "a"); got != want {
				t.Errorf("%s there are %d keys, want %d", when, got, want)
			}
		}
		time.Sleep(time.Hour)
		exists("while the lease is kept", 1)
		holder.Cut()
		time.Sleep(6 * time.Second)
		exists("before the lease ends", 1)
		time.Sleep(5 * time.Second)
		exists("after its end", 0)
		for range alive { // ends
		}
	})
}

func TestPartitionedClientMissesNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcdmemory.New()
		cut := connect(t, s)
		other := connect(t, s)
		watch := cut.Client().Watch(t.Context(), "a", clientv3.WithCreatedNotify())
		<-watch
		cut.Cut()
		if _, err := cut.Client().Get(t.Context(), "a"); status.Code(err) != codes.Unavailable {
			t.Errorf("a request of a client that is cut off: %v", err)
		}
		etcdtest.Put(t, other.Client(), "a", "")
		time.Sleep(time.Minute)
		select {
		case r := <-watch:
			t.Errorf("a client that is cut off heard %v", r)
		default:
		}
		cut.Heal()
		if r := <-watch; len(r.Events) != 1 {
			t.Errorf("after the cut the watch told %v", r)
		}
	})
}

func TestUnsupportedRequestsAreRefused(t *testing.T) {
	ctx := context.Background()
	c := connect(t, etcdmemory.New()).Client()
	_, compact := c.Compact(ctx, 1)
	_, ignore := c.Put(ctx, "a", "", clientv3.WithIgnoreValue())
	for _, err := range []error{compact, ignore} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%v, want a refusal", err)
		}
	}
	if _, err := c.Grant(ctx, 5); err != nil {
		t.Error(err)
	}
}
