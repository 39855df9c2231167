package lockstore_test

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// endings writes n of them and returns their keys, the oldest first.
func (w world) endings(n int) (keys []string) {
	w.Helper()
	for i := range n {
		key := w.l.History(uuid(n - i)) // the order of keys is not that of time
		w.put(key, protocol.Marshal(metadata.Ending{Lock: fmt.Sprint(i), UUID: uuid(n - i)}))
		keys = append(keys, key)
	}
	return keys
}

func TestTrimHistoryKeepsTheNewestEndings(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.endings(200)
	w.hold("a", uuid(1000))
	if n, err := w.TrimHistory(t.Context(), 200); n != 0 || err != nil {
		t.Errorf("with as many as may be: %d deleted, %v", n, err)
	}
	if n, err := w.TrimHistory(t.Context(), 30); n != 170 || err != nil {
		t.Fatalf("%d deleted, %v", n, err)
	}
	left, err := w.History(t.Context(), 1000)
	if err != nil || len(left) != 30 || left[0].Lock != "199" || left[29].Lock != "170" {
		t.Errorf("%d are left, %v", len(left), err)
	}
	if w.record("a").UUID != uuid(1000) {
		t.Error("a lock is gone")
	}
	if n, err := w.TrimHistory(t.Context(), 0); n != 30 || err != nil {
		t.Errorf("without any: %d deleted, %v", n, err)
	}
}

func TestTrimHistoryKeepsARewrittenEnding(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	var wire wire
	w := on(t, wire.client(t, s))
	keys := w.endings(3)
	other := on(t, s.Client(t))
	wire.onTxn(func(_ *pb.TxnRequest, send func() error) error {
		other.put(keys[0], "{}") // between the look and the deletion
		return send()
	})
	if n, err := w.TrimHistory(t.Context(), 2); n != 0 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
	if left := other.keys(w.l.Histories()); len(left) != 3 {
		t.Errorf("%q are left", left)
	}
}

func TestTrimHistoryMakesRoomInAFullEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Quota(4<<20))
	w := on(t, s.Client(t))
	w.endings(5)
	s.Fill(t, "/fill/")
	if n, err := w.TrimHistory(t.Context(), 1); n != 4 || err != nil {
		t.Errorf("%d deleted, %v", n, err)
	}
}

func TestTrimHistoryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.endings(100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := w.TrimHistory(ctx, 0); n != 0 || err == nil {
		t.Errorf("%d deleted, %v", n, err)
	}
}
