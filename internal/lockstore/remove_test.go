package lockstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var errLost = status.Error(codes.Unavailable, "the answer got lost")

func TestAutoUnlockJudgesEveryHoldByItself(t *testing.T) {
	w := start(t)
	var removals []metadata.Removal
	for i := range 200 {
		removals = append(removals, removal(w.hold(fmt.Sprintf("lock/%d", i), uuid(i))))
	}
	w.alive(removals[10].Record, at.Add(time.Hour))
	w.release(removals[20].Record)
	w.release(removals[30].Record)
	w.hold("lock/30", uuid(1000))
	for i, err := range w.AutoUnlock(t.Context(), removals) {
		want := error(nil)
		if i == 10 || i == 20 || i == 30 {
			want = metadata.ErrChanged
		}
		if err != want {
			t.Errorf("lock/%d: %v, want %v", i, err, want)
		}
	}
	if left := w.keys(w.l.Record("lock/10")); len(left) != 5 {
		t.Errorf("of the extended lock: %v", left)
	}
	if left := w.keys(w.l.Prefix() + "lock"); len(left) != 5+4 {
		t.Errorf("left: %v", left)
	}
	endings, err := w.History(t.Context(), 1000)
	if err != nil || len(endings) != 197 || endings[0].Ended != metadata.EndedAutoUnlocked || endings[0].Owner != "billing" {
		t.Errorf("%d endings, %v", len(endings), err)
	}
}

func (w world) release(r *metadata.Record) {
	w.Helper()
	if _, err := locktxn.Release(w.l, locktxn.Hold{Lock: r.Name, UUID: r.UUID, Token: r.Token}).Commit(w.Context(), w.etcd); err != nil {
		w.Fatal(err)
	}
}

func TestAutoUnlockOfNothing(t *testing.T) {
	if got := start(t).AutoUnlock(t.Context(), nil); len(got) != 0 {
		t.Error(got)
	}
}

// All a hostile writer can think of, removed in one go together with sound locks.
func TestAutoUnlockOfHostileRecords(t *testing.T) {
	w := start(t)
	full := map[string]any{}
	for i := range metadata.MaxAttributes {
		full[fmt.Sprintf("a%d", i)] = strings.Repeat("<", 900)
	}
	for i := range 40 { // more than one request can carry
		w.hold(fmt.Sprintf("full/%d", i), uuid(i), func(d *metadata.Draft) { d.Attributes = full })
	}
	w.hold("same/1", uuid(100)) // a copied uuid: both endings want the same key
	w.hold("same/2", uuid(100))
	w.hold("foreign", uuid(101))
	w.put(w.l.Record("foreign")+"b/uuid", "not ours")
	w.put(w.l.Field("foreign", "tenant"), "41")
	for i := range 120 {
		w.put(w.l.Field("many", fmt.Sprintf("f%d", i)), "x")
	}
	w.put(w.l.Field("slash", metadata.FieldUUID), "a/../b")
	w.put(w.l.Field("huge", metadata.FieldUUID), strings.Repeat("u", 1<<20))
	w.put(w.l.Field("nobody", metadata.FieldOwner), "x")
	names := []string{"same/1", "same/2", "foreign", "many", "slash", "huge", "nobody", "sound"}
	w.hold("sound", uuid(102))
	for i := range 40 {
		names = append(names, fmt.Sprintf("full/%d", i))
	}
	var removals []metadata.Removal
	for _, name := range names {
		removals = append(removals, removal(w.record(name)))
	}
	for i, err := range w.AutoUnlock(t.Context(), removals) {
		if err != nil {
			t.Errorf("%s: %v", names[i], err)
		}
	}
	left := w.keys(w.l.Prefix())
	for _, key := range left {
		if k := w.l.Parse(key); k.Kind != metadata.KindHistory && key != w.l.Record("foreign")+"b/uuid" {
			t.Errorf("left: %s", key)
		}
	}
}

func TestAutoUnlockTakesANewLeaseWhenItsOwnIsGone(t *testing.T) {
	w := start(t)
	first := w.AutoUnlock(t.Context(), []metadata.Removal{removal(w.hold("a", uuid(1)))})
	leases, err := w.etcd.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 || first[0] != nil {
		t.Fatalf("leases %+v, %v, %v", leases, err, first)
	}
	ttl, err := w.etcd.TimeToLive(t.Context(), leases.Leases[0].ID)
	if want := int64((lockstore.DefaultRetention + time.Hour).Seconds()); err != nil || ttl.GrantedTTL != want {
		t.Errorf("endings live %d s, want %d (%v)", ttl.GrantedTTL, want, err)
	}
	second := w.AutoUnlock(t.Context(), []metadata.Removal{removal(w.hold("b", uuid(2)))})
	if leases, _ := w.etcd.Leases(t.Context()); len(leases.Leases) != 1 || second[0] != nil {
		t.Errorf("the second ending has a lease of its own: %+v, %v", leases, second)
	}
	if _, err := w.etcd.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	third := w.AutoUnlock(t.Context(), []metadata.Removal{removal(w.hold("c", uuid(3)))})
	if got := w.keys(w.l.Histories()); third[0] != nil || len(got) != 1 || got[0] != w.l.History(uuid(3)) {
		t.Errorf("after the lease was revoked: %v, %v", third, got)
	}
}

func TestAutoUnlockWithAnEtcdThatAllowsLess(t *testing.T) {
	line := &wire{}
	w := on(t, line.client(t, etcdtest.Start(t)))
	var removals []metadata.Removal
	for i := range 20 {
		removals = append(removals, removal(w.hold(fmt.Sprint(i), uuid(i))))
	}
	most := 0
	line.onTxn(func(req *pb.TxnRequest, send func() error) error {
		if len(req.Success) > 3 {
			return rpctypes.ErrGRPCTooManyOps
		}
		most = max(most, len(req.Success))
		return send()
	})
	for i, err := range w.AutoUnlock(t.Context(), removals) {
		if err != nil {
			t.Errorf("lock %d: %v", i, err)
		}
	}
	if most < 2 {
		t.Errorf("at most %d at a time", most)
	}
}

func TestAutoUnlockSeesTheBatchInFlightThrough(t *testing.T) {
	line := &wire{}
	w := on(t, line.client(t, etcdtest.Start(t)))
	var removals []metadata.Removal
	for i := range 200 {
		removals = append(removals, removal(w.hold(fmt.Sprint(i), uuid(i))))
	}
	ctx, cancel := context.WithCancel(t.Context())
	line.onTxn(func(_ *pb.TxnRequest, send func() error) error {
		cancel()
		return send()
	})
	errs := w.AutoUnlock(ctx, removals)
	for i, err := range errs {
		if inFlight := i < 64; inFlight && err != nil || !inFlight && !errors.Is(err, context.Canceled) {
			t.Errorf("removal %d: %v", i, err)
		}
	}
	if left := len(w.keys(w.l.Prefix())) - len(w.keys(w.l.Histories())); left != 4*(200-64) {
		t.Errorf("%d keys left", left)
	}
}

func TestAutoUnlockWhoseAnswerGotLost(t *testing.T) {
	for name, c := range map[string]struct {
		committed bool
		check     func(error) bool
		left      int
	}{
		"though it was done": {true, func(err error) bool { return err == nil }, 0},
		"and which was not done": {false, func(err error) bool {
			return err != nil && !errors.Is(err, metadata.ErrChanged) && !errors.Is(err, context.Canceled)
		}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			line := &wire{}
			w := on(t, line.client(t, etcdtest.Start(t)))
			removals := []metadata.Removal{removal(w.hold("a", uuid(1))), removal(w.hold("gone", uuid(2))), removal(w.hold("b", uuid(3)))}
			w.release(removals[1].Record)
			sent := 0
			line.onTxn(func(req *pb.TxnRequest, send func() error) error {
				if !writes(req) {
					return send()
				}
				if sent++; c.committed {
					if err := send(); err != nil {
						t.Error(err)
					}
				}
				return errLost
			})
			errs := w.AutoUnlock(t.Context(), removals)
			if !c.check(errs[0]) || errs[1] != metadata.ErrChanged || !c.check(errs[2]) {
				t.Errorf("results %v", errs)
			}
			if sent != 1 {
				t.Errorf("sent %d times", sent)
			}
			if left := len(w.keys(w.l.Field("a", ""))) + len(w.keys(w.l.Field("b", ""))); left != c.left {
				t.Errorf("%d keys left, want %d", left, c.left)
			}
		})
	}
}

// writes tells whether the transaction may write; the nested ones of this package do or do not all alike.
func writes(req *pb.TxnRequest) bool {
	for _, op := range req.Success {
		if nested := op.GetRequestTxn(); nested != nil && writes(nested) || op.GetRequestDeleteRange() != nil || op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

func action(r *metadata.Record) metadata.Action {
	return metadata.Action{
		ID: "1", At: metadata.Time{Time: at}, Actor: "ann", Source: "cli", Action: "force-unlock", Lock: r.Name, UUID: r.UUID, Token: r.Token,
		Holder: "billing on billing-7f9c", Reason: "the pod is gone for good", Result: "success",
	}
}

func TestForceUnlock(t *testing.T) {
	w := start(t)
	r := w.hold("a/b", uuid(1))
	w.alive(r, at.Add(time.Hour)) // the person saw it before
	if err := w.ForceUnlock(t.Context(), removal(r), action(r)); err != nil {
		t.Fatal(err)
	}
	if left := w.keys(w.l.Record("a/b")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	ending, err := w.Ending(t.Context(), uuid(1))
	if err != nil || ending == nil || ending.Lock != "a/b" || ending.Token != r.Token {
		t.Errorf("ending %+v, %v", ending, err)
	}
	actions, err := w.Audit(t.Context(), 10)
	if err != nil || len(actions) != 1 || actions[0] != action(r) {
		t.Errorf("audit %+v, %v", actions, err)
	}
	for _, key := range append(w.keys(w.l.Audits()), w.keys(w.l.Histories())...) {
		if resp, err := w.etcd.Get(t.Context(), key); err != nil || resp.Kvs[0].Lease == 0 {
			t.Errorf("%s has no lease", key)
		}
	}
}

func TestForceUnlockOfAHoldThatIsOver(t *testing.T) {
	w := start(t)
	r := w.hold("a", uuid(1))
	w.release(r)
	err := w.ForceUnlock(t.Context(), removal(r), action(r))
	var changed *lockstore.ChangedError
	if !errors.As(err, &changed) || !errors.Is(err, metadata.ErrChanged) || len(changed.Now.Fields) != 0 || !strings.Contains(err.Error(), "nobody holds") {
		t.Errorf("after a release: %v", err)
	}
	next := w.hold("a", uuid(2))
	err = w.ForceUnlock(t.Context(), removal(r), action(r))
	if !errors.As(err, &changed) || changed.Now.UUID != uuid(2) || changed.Now.Token != next.Token || !strings.Contains(err.Error(), `"billing"`) {
		t.Errorf("after another took it: %v", err)
	}
	if w.record("a").UUID != uuid(2) || len(w.keys(w.l.Audits())) > 0 || len(w.keys(w.l.Histories())) > 0 {
		t.Errorf("left: %v", w.keys(w.l.Prefix()))
	}
}

func TestForceUnlockInAFullEtcd(t *testing.T) {
	s := etcdtest.Start(t, etcdtest.Quota(4<<20))
	var log bytes.Buffer
	w := on(t, s.Client(t), lockstore.WithLog(zerolog.New(&log)))
	r := w.hold("a", uuid(1))
	s.Fill(t, "/fill/")
	if err := w.ForceUnlock(t.Context(), removal(r), action(r)); err != nil {
		t.Fatal(err)
	}
	if left := w.keys(w.l.Record("a")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, want := range []string{`"actor":"ann"`, `"lock":"a"`, "the pod is gone for good", "out of space"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
	if errs := w.AutoUnlock(t.Context(), []metadata.Removal{removal(r)}); errs[0] == nil || errors.Is(errs[0], metadata.ErrChanged) {
		t.Errorf("auto-unlock in a full etcd: %v", errs)
	}
}

func TestForceUnlockWhoseAnswerGotLost(t *testing.T) {
	for name, c := range map[string]struct {
		committed, late bool
		check           func(error) bool
	}{
		"though it was done": {true, false, func(err error) bool { return err == nil }},
		"and which was not done": {false, false, func(err error) bool {
			return err != nil && !errors.Is(err, metadata.ErrChanged) && strings.Contains(err.Error(), "unknown")
		}},
		"while another took it": {false, true, func(err error) bool { return errors.Is(err, metadata.ErrChanged) }},
	} {
		t.Run(name, func(t *testing.T) {
			line := &wire{}
			w := on(t, line.client(t, etcdtest.Start(t)))
			r := w.hold("a", uuid(1))
			sent := 0
			line.onTxn(func(req *pb.TxnRequest, send func() error) error {
				if !writes(req) {
					return send()
				}
				if sent++; c.committed {
					if err := send(); err != nil {
						t.Error(err)
					}
				}
				if c.late {
					line.onTxn(nil)
					w.release(r)
					w.hold("a", uuid(2))
				}
				return errLost
			})
			err := w.ForceUnlock(t.Context(), removal(r), action(r))
			if !c.check(err) || sent != 1 {
				t.Errorf("error %v, sent %d times", err, sent)
			}
		})
	}
}

func TestHistoryAndAuditComeNewestFirst(t *testing.T) {
	w := start(t)
	for i := range 5 {
		r := w.hold("a", uuid(10-i))
		a := action(r)
		a.ID, a.At.Time = fmt.Sprint(i), at.Add(time.Duration(i)*time.Minute)
		if err := w.ForceUnlock(t.Context(), removal(r), a); err != nil {
			t.Fatal(err)
		}
	}
	w.put(w.l.History("junk"), "{")
	w.put(w.l.Audit(at, "junk"), "\xff")
	endings, err := w.History(t.Context(), 4)
	if err != nil || len(endings) != 3 || endings[0].UUID != uuid(6) || endings[2].UUID != uuid(8) {
		t.Errorf("history %+v, %v", endings, err)
	}
	actions, err := w.Audit(t.Context(), 2)
	if err != nil || len(actions) != 2 || actions[0].ID != "4" || actions[1].ID != "3" {
		t.Errorf("audit %+v, %v", actions, err)
	}
	if ending, err := w.Ending(t.Context(), uuid(99)); ending != nil || err != nil {
		t.Errorf("ending of a hold that nobody ended: %+v, %v", ending, err)
	}
	if _, err := w.Ending(t.Context(), "junk"); err == nil {
		t.Error("no error for an ending that can not be read")
	}
}

func TestAnnounce(t *testing.T) {
	w := start(t)
	p := metadata.Presence{ID: "u1", Now: metadata.Time{Time: at}, Mode: "auto-unlock"}
	var last lockstore.Head
	for i := range 3 {
		p.Revision = int64(i)
		head, err := w.Announce(t.Context(), p)
		if err != nil || head.Revision <= last.Revision || head.RaftTerm == 0 {
			t.Fatalf("%+v after %+v, %v", head, last, err)
		}
		last = head
	}
	resp, err := w.etcd.Get(t.Context(), w.l.Unlocker("u1"))
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(resp, err)
	}
	if got, err := metadata.Unmarshal[metadata.Presence](resp.Kvs[0].Value); err != nil || got.Revision != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	id := clientv3.LeaseID(resp.Kvs[0].Lease)
	if ttl, err := w.etcd.TimeToLive(t.Context(), id); err != nil || ttl.GrantedTTL != 15 {
		t.Errorf("lease %+v, %v", ttl, err)
	}
	if _, err := w.etcd.Revoke(t.Context(), id); err != nil { // as after a pause of the process
		t.Fatal(err)
	}
	if _, err := w.Announce(t.Context(), p); err != nil {
		t.Errorf("after the lease was lost: %v", err)
	}
	if err := w.Leave(t.Context(), "u1"); err != nil || len(w.keys(w.l.Unlockers())) > 0 {
		t.Errorf("after Leave: %v, %v", w.keys(w.l.Unlockers()), err)
	}
}

func TestAnnounceFailsInAFullEtcd(t *testing.T) {
	s := etcdtest.Start(t, etcdtest.Quota(4<<20))
	w := on(t, s.Client(t))
	if _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"}); err != nil {
		t.Fatal(err)
	}
	s.Fill(t, "/fill/")
	if _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("error %v, want that there is no space", err)
	}
}
