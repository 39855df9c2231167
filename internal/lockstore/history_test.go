package lockstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestHistoryAndAuditComeNewestFirst(t *testing.T) {
	w := parallel(t)
	for i := range 5 {
		r := w.hold("a", uuid(10-i))
		a := action(r)
		a.ID = fmt.Sprint(i)
		a.At.Time = at.Add(time.Duration(i) * time.Minute)
		w.did(r, a)
	}
	w.put(w.l.History("junk"), "{")
	w.put(w.l.Audit(at, "junk"), "\xff")
	endings, err := w.ReadHistory(t.Context(), 4)
	if err != nil || len(endings) != 3 || endings[0].UUID != uuid(6) || endings[2].UUID != uuid(8) {
		t.Errorf("history %+v, %v", endings, err)
	}
	actions, err := w.ReadAudit(t.Context(), 2)
	if err != nil || len(actions) != 2 || actions[0].ID != "4" || actions[1].ID != "3" {
		t.Errorf("audit %+v, %v", actions, err)
	}
	if ending, err := w.ReadEnding(t.Context(), uuid(99)); ending != nil || err != nil {
		t.Errorf("ending of a hold that was not ended: %+v, %v", ending, err)
	}
	if _, err := w.ReadEnding(t.Context(), "junk"); err == nil {
		t.Error("no error for an ending that cannot be read")
	}
}

func TestAnnounce(t *testing.T) {
	w := alone(t)
	p := metadata.Presence{ID: "u1", Now: metadata.Time{Time: at}, Mode: "auto-unlock"}
	last := int64(0)
	for i := range 3 {
		p.Revision = int64(i)
		revision, term, err := w.Announce(t.Context(), p)
		if err != nil || revision <= last || term == 0 {
			t.Fatalf("revision %d after %d, term %d, %v", revision, last, term, err)
		}
		last = revision
	}
	got, err := protocol.Unmarshal[metadata.Presence](w.get(w.l.Unlocker("u1"))[0].Value)
	id, ttl := w.leaseOf(w.l.Unlocker("u1"))
	if err != nil || got.Revision != 2 || ttl != 15 {
		t.Errorf("%+v, %v, with a lease of %d s", got, err, ttl)
	}
	_, err = w.ListKeys(t.Context(), func(kv protocol.KV) {
		if kv.Lease != int64(id) {
			t.Errorf("%s is listed with lease %d, want %d", kv.Key, kv.Lease, id)
		}
	})
	proctest.Must(t, err)
	w.revoke(id) // as after a pause of the process
	_, _, err = w.Announce(t.Context(), p)
	proctest.Must(t, err)
	if err := w.DeletePresence(t.Context(), "u1"); err != nil || len(w.keys(w.l.Unlockers())) > 0 {
		t.Errorf("after Leave: %v, %v", w.keys(w.l.Unlockers()), err)
	}
}

func TestAnnounceSkipsARefusingMember(t *testing.T) {
	refuses := []error{rpctypes.ErrGRPCNoLeader, nil}
	line := &wire{puts: func() (err error) { err, refuses = refuses[0], refuses[1:]; return err }}
	w := on(t, line.client(t, etcdtest.Start(t).Endpoint()))
	_, _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"})
	proctest.Must(t, err)
}

// A member whose disk hangs still answers pings, so clients keep sending it requests in turn.
func TestAnnounceSkipsAHangingMember(t *testing.T) {
	t.Parallel()
	for what, hangs := range map[string]func(req any) bool{
		"a put":           func(req any) bool { _, is := req.(*pb.PutRequest); return is },
		"a lease's grant": func(req any) bool { _, is := req.(*pb.LeaseGrantRequest); return is },
	} {
		var asked atomic.Int32
		line := &wire{hang: func(req any) bool { return hangs(req) && asked.Add(1) == 1 }}
		w := on(t, line.client(t, etcdtest.Start(t).Endpoint()))
		if revision, _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"}); err != nil || revision == 0 ||
			asked.Load() != 2 {
			t.Errorf("%s hangs: %d, %v after %d of them", what, revision, err, asked.Load())
		}
	}
}

// endings writes n endings and returns their keys, the oldest first.
func (w world) endings(n int) (keys []string) {
	w.Helper()
	for i := range n {
		key := w.l.History(uuid(n - i)) // the order of keys is not that of time
		w.put(key, protocol.Marshal(metadata.Ending{Name: fmt.Sprint(i), UUID: uuid(n - i)}))
		keys = append(keys, key)
	}
	return keys
}

// trims trims the history to a number of endings and expects a number of deletions.
func (w world) trims(max, want int) {
	w.Helper()
	if n, err := w.TrimHistory(w.Context(), max); n != want || err != nil {
		w.Errorf("%d deleted to have %d left, want %d (%v)", n, max, want, err)
	}
}

func TestTrimHistoryKeepsTheNewestEndings(t *testing.T) {
	w := alone(t)
	w.endings(200)
	w.hold("a", uuid(1000))
	w.trims(200, 0)
	w.trims(30, 170)
	left, err := w.ReadHistory(t.Context(), 1000)
	if err != nil || len(left) != 30 || left[0].Name != "199" || left[29].Name != "170" {
		t.Errorf("%d are left, %v", len(left), err)
	}
	if w.record("a").UUID != uuid(1000) {
		t.Error("a lock is gone")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := w.TrimHistory(ctx, 0); n != 0 || err == nil {
		t.Errorf("%d deleted at the end of the context, %v", n, err)
	}
	w.trims(0, 30)
}

func TestTrimHistoryKeepsARewrittenEnding(t *testing.T) {
	line, w := wired(t)
	keys := w.endings(3)
	line.once(func(send func() error) error {
		w.put(keys[0], "{}") // between the look and the deletion
		return send()
	})
	w.trims(2, 0)
	if left := w.keys(w.l.Histories()); len(left) != 3 {
		t.Errorf("%q are left", left)
	}
}
