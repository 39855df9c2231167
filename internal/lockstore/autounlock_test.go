package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var errLost = status.Error(codes.Unavailable, "the answer got lost")

func TestAutoUnlockJudgesEveryHoldByItself(t *testing.T) {
	w := alone(t)
	removals := w.expired("lock/%d", 200)
	w.alive(removals[10].Record, at.Add(time.Hour))
	w.release(removals[20].Record)
	w.release(removals[30].Record)
	w.hold("lock/30", uuid(1000))
	w.removeAll(removals, 10, 20, 30)
	if left := w.keys(w.l.Record("lock/10")); len(left) != 5 {
		t.Errorf("of the extended lock: %v", left)
	}
	if left := w.keys(w.l.Prefix() + "lock"); len(left) != 5+4 {
		t.Errorf("left: %v", left)
	}
	endings, err := w.ReadHistory(t.Context(), 1000)
	if err != nil || len(endings) != 197 || endings[0].Cause != metadata.EndingAutoUnlocked ||
		endings[0].Owner != "billing" {
		t.Errorf("%d endings, %v", len(endings), err)
	}
}

// Every known hostile record is removed in one batch together with sound locks.
func TestAutoUnlockOfHostileRecords(t *testing.T) {
	w := alone(t)
	full := map[string]any{}
	for i := range lockrecord.MaxAttributes {
		full[fmt.Sprintf("a%d", i)] = strings.Repeat("<", 900)
	}
	var names []string
	for i := range 40 { // more than one request can carry
		names = append(names, w.hold(fmt.Sprintf("full/%d", i), uuid(i), func(d *lockrecord.Draft) {
			d.Attributes = full
		}).Name)
	}
	w.hold("same/1", uuid(100)) // a copied uuid: both endings want the same key
	w.hold("same/2", uuid(100))
	w.hold("foreign", uuid(101))
	w.put(w.l.Record("foreign")+"b/uuid", "not ours")
	w.put(w.l.Field("foreign", "tenant"), "41")
	w.putFields("many", many("f%d", 120), "x")
	w.put(w.l.Field("slash", lockrecord.FieldUUID), "a/../b")
	w.put(w.l.Field("huge", lockrecord.FieldUUID), strings.Repeat("u", 1<<20))
	w.put(w.l.Field("nobody", lockrecord.FieldOwner), "x")
	w.hold("sound", uuid(102))
	names = append(names, "same/1", "same/2", "foreign", "many", "slash", "huge", "nobody", "sound")
	var removals []lockrecord.Removal
	for _, name := range names {
		removals = append(removals, removal(w.record(name)))
	}
	w.removeAll(removals)
	for _, key := range w.keys(w.l.Prefix()) {
		if k := w.l.Parse(key); k.Kind != protocol.KindHistory && key != w.l.Record("foreign")+"b/uuid" {
			t.Errorf("left: %s", key)
		}
	}
}

func TestAutoUnlockReplacesALostLease(t *testing.T) {
	w := parallel(t)
	w.remove(removal(w.hold("a", uuid(1))))
	lease, ttl := w.leaseOf(w.l.History(uuid(1)))
	if want := int64((protocol.HistoryRetention + time.Hour).Seconds()); ttl != want {
		t.Errorf("endings live %d s, want %d", ttl, want)
	}
	w.remove(removal(w.hold("b", uuid(2))))
	if leases := w.leases(); len(leases) != 1 {
		t.Errorf("the second ending has a lease of its own: %+v", leases)
	}
	w.revoke(lease)
	w.remove(removal(w.hold("c", uuid(3))))
	if got := w.keys(w.l.Histories()); len(got) != 1 || got[0] != w.l.History(uuid(3)) {
		t.Errorf("after the lease was revoked: %v", got)
	}
}

func TestAutoUnlockWithALowerTransactionLimit(t *testing.T) {
	line, w := wired(t)
	removals := w.expired("%d", 20)
	most := 0
	line.onTxn(func(req *pb.TxnRequest, send func() error) error {
		if len(req.Success) > 3 {
			return rpctypes.ErrGRPCTooManyOps
		}
		most = max(most, len(req.Success))
		return send()
	})
	w.removeAll(removals)
	if most < 2 {
		t.Errorf("at most %d at a time", most)
	}
}

func TestAutoUnlockFinishesTheBatchInFlight(t *testing.T) {
	line, w := wired(t)
	removals := w.expired("%d", 200)
	ctx, cancel := context.WithCancel(t.Context())
	line.onTxn(func(_ *pb.TxnRequest, send func() error) error {
		cancel()
		return send()
	})
	for i, err := range w.AutoUnlock(ctx, removals) {
		if inFlight := i < 64; inFlight && err != nil || !inFlight && !errors.Is(err, context.Canceled) {
			t.Errorf("removal %d: %v", i, err)
		}
	}
	if left := len(w.keys(w.l.Prefix())) - len(w.keys(w.l.Histories())); left != 4*(200-64) {
		t.Errorf("%d keys left", left)
	}
}

func TestAutoUnlockWithALostAnswer(t *testing.T) {
	t.Parallel()
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
			line, w := wired(t)
			removals := []lockrecord.Removal{removal(w.hold("a", uuid(1))), removal(w.hold("gone", uuid(2))),
				removal(w.hold("b", uuid(3)))}
			w.release(removals[1].Record)
			w.put(w.l.Field("nobody", lockrecord.FieldAutoUnlockAt), "1553682600")
			removals = append(removals, removal(w.record("nobody")))
			sent := 0
			line.lose(c.committed, func() { sent++ })
			errs := w.AutoUnlock(t.Context(), removals)
			if !c.check(errs[0]) || errs[1] != metadata.ErrChanged || !c.check(errs[2]) || !c.check(errs[3]) ||
				sent != 1 {
				t.Errorf("results %v of %d sendings", errs, sent)
			}
			if left := len(w.keys(w.l.Field("a", ""))) + len(w.keys(w.l.Field("b", ""))); left != c.left {
				t.Errorf("%d keys left, want %d", left, c.left)
			}
		})
	}
}

// writes reports whether the transaction may write; all nested transactions of this package are alike in this.
func writes(req *pb.TxnRequest) bool {
	for _, op := range req.Success {
		if nested := op.GetRequestTxn(); nested != nil && writes(nested) || op.GetRequestDeleteRange() != nil ||
			op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

// A batch may have both kinds of removals, each with its own guards.
func TestAbandonedLockIsRemovedOnlyWhileItsProofStands(t *testing.T) {
	w := parallel(t)
	var removals []lockrecord.Removal
	for i := range 6 {
		r := w.hold(fmt.Sprintf("lock/%d", i), uuid(i))
		w.prove(r)
		removals = append(removals,
			lockrecord.Removal{Record: r, Ending: lockrecord.NewEnding(r, metadata.EndingAbandoned,
				"u1", "its process ended", at)})
	}
	w.put(w.l.Death(uuid(1)), "stated anew")
	w.deleteKey(w.l.Death(uuid(2)))
	w.alive(removals[3].Record, at.Add(time.Hour))
	w.put(w.l.Death(uuid(4)), "stated anew") // which does not matter to a removal for its deadline
	removals[4].Ending.Cause = metadata.EndingAutoUnlocked
	w.removeAll(removals, 1, 2, 3)
	ending, err := w.ReadEnding(t.Context(), uuid(0))
	if err != nil || ending == nil || ending.Cause != metadata.EndingAbandoned || ending.Reason != "its process ended" {
		t.Errorf("%+v, %v", ending, err)
	}
}

// While more than a thousand locks are removed, taking and releasing one waits for a batch or two, not for all.
func TestMassExpiryDoesNotDelayHolders(t *testing.T) {
	w := start(t)
	removals := w.expired("due/%d", 1500)
	during := others(w, func() { w.removeAll(removals) })
	if len(during) < 5*16 {
		t.Errorf("16 clients took and released only %d locks meanwhile", len(during))
	}
}
