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
)

func put(t *testing.T, l *etcdmemory.Link, key string, opts ...clientv3.OpOption) {
	t.Helper()
	if _, err := l.Client().Put(t.Context(), key, "", opts...); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, l *etcdmemory.Link, key string) bool {
	t.Helper()
	r, err := l.Client().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Kvs) == 1
}

func TestKeysOfALeaseLiveAsLongAsItIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcdmemory.New()
		holder := connect(t, s)
		other := connect(t, s)
		lease, err := holder.Client().Grant(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		put(t, holder, "a", clientv3.WithLease(lease.ID))
		alive, err := holder.Client().KeepAlive(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if !exists(t, other, "a") {
			t.Fatal("the key of a lease that is kept is gone")
		}
		holder.Cut()
		time.Sleep(6 * time.Second)
		if !exists(t, other, "a") {
			t.Fatal("the key of a lease is gone before its end")
		}
		time.Sleep(5 * time.Second)
		if exists(t, other, "a") {
			t.Fatal("the key of a lease is there after its end")
		}
		for range alive { // ends
		}
	})
}

func TestClientThatIsCutOffMissesNothing(t *testing.T) {
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
		put(t, other, "a")
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

func TestWhatIsNotInMemoryIsRefused(t *testing.T) {
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
