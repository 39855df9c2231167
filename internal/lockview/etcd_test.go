package lockview_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func source(s *lockstore.Store) lockview.Source {
	return lockview.Source{List: s.List, Watch: s.Watch, Ending: s.Ending}
}

// holders are clients that take, keep and give back locks on a real etcd.
type holders struct {
	testing.TB
	etcd *clientv3.Client
}

func (h holders) take(lock, uuid string, change ...func(*metadata.Draft)) locktxn.Hold {
	h.Helper()
	d := draft(uuid)
	for _, c := range change {
		c(&d)
	}
	fields, err := d.Fields()
	if err != nil {
		h.Fatal(err)
	}
	resp := h.commit(locktxn.Acquire(layout, locktxn.Sole(lock), uuid, fields, true))
	return locktxn.Hold{Lock: lock, UUID: uuid, Token: resp.Header.Revision}
}

func (h holders) release(hold locktxn.Hold) { h.Helper(); h.commit(locktxn.Release(layout, hold)) }

func (h holders) commit(t locktxn.Txn) *clientv3.TxnResponse {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	resp, err := t.Commit(ctx, h.etcd)
	for errors.Is(err, rpctypes.ErrInvalidAuthToken) { // the login ended; the client has a new one by now
		resp, err = t.Commit(ctx, h.etcd)
	}
	if err != nil {
		h.Fatal(err)
	}
	return resp
}

func (h holders) put(key, value string) int64 {
	h.Helper()
	resp, err := h.etcd.Put(context.Background(), key, value)
	if err != nil {
		h.Fatal(err)
	}
	return resp.Header.Revision
}

// until waits until f is true of the view, looking again whenever it changed.
func until(t testing.TB, v *lockview.View, what string, f func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		changed := v.Changed()
		if f() {
			return
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // signs of life do not count as changes
		case <-late:
			t.Fatalf("never: %s; %+v", what, v.Fresh())
		}
	}
}

func name(i int) string { return fmt.Sprintf("billing/invoice/%06d", i) }
