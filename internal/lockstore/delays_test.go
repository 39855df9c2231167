package lockstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func delayed(r *metadata.Record, d time.Duration) lockrecord.Removal {
	gone := removal(r)
	gone.Delay = d
	return gone
}

// delay returns the only delay of the lock and its shares.
func (w world) delay(lock string) metadata.LockDelay {
	w.Helper()
	look, err := w.ReadLock(w.Context(), lock)
	if err != nil || len(look.Delays) != 1 {
		w.Fatalf("the delays of %s: %+v, %v", lock, look.Delays, err)
	}
	return look.Delays[0]
}

func TestLockDelayFollowsHoldsThatAskForOne(t *testing.T) {
	w := alone(t)
	removals := w.expired("lock/%d", 64)
	for i := range removals {
		removals[i].Delay = []time.Duration{0, 9*time.Minute + 5*time.Second, 904500 * time.Millisecond}[i%3]
	}
	w.release(removals[4].Record) // whose hold did not end by this
	w.removeAll(removals, 4)
	leases := map[clientv3.LeaseID]bool{}
	for i := range removals {
		name := fmt.Sprintf("lock/%d", i)
		if i%3 == 0 || i == 4 {
			if got := w.get(w.l.Delay(name)); len(got) > 0 {
				t.Errorf("there is %v", got)
			}
			continue
		}
		d := w.delay(name)
		if d.UUID != uuid(i) || d.Owner != "billing" || d.By != "u1" || d.Cause != metadata.EndingAutoUnlocked ||
			d.Name != name || !d.Leased || d.Unreadable || d.Seconds != int64([]int{0, 545, 905}[i%3]) {
			t.Errorf("%s: %+v", name, d)
		}
		id, ttl := w.leaseOf(w.l.Delay(name))
		leases[id] = true
		if want := []int64{0, 546, 906}[i%3]; ttl != want {
			t.Errorf("%s has a lease of %d s, want %d", name, ttl, want)
		}
	}
	if len(leases) > 4 {
		t.Errorf("%d leases for two kinds of delays", len(leases))
	}
}

func TestDeadHolderCausesNoDelay(t *testing.T) {
	w := parallel(t)
	r := w.hold("a", uuid(1))
	w.prove(r)
	gone := delayed(r, time.Minute)
	gone.Ending.Cause = metadata.EndingAbandoned
	w.remove(gone)
	w.put(w.l.Field("nobody", lockrecord.FieldAutoUnlockAt), "1553682600")
	nobody := w.record("nobody")
	w.remove(delayed(nobody, time.Minute))
	if got := w.keys(w.l.Delays()); len(got) > 0 {
		t.Errorf("delays: %v", got)
	}
}

func TestForceUnlockWithADelay(t *testing.T) {
	w := parallel(t)
	r := w.hold("pool#2", uuid(1), func(d *lockrecord.Draft) {
		d.Attributes = map[string]any{"kind": "semaphore", "permits": 3, "limit": 5}
	})
	on := protocol.ActionTarget{Hold: r, LockDelayAfter: time.Minute}
	out, err := w.Perform(t.Context(), protocol.VerbForceUnlock, on,
		protocol.Action{ID: "1", At: metadata.Time{Time: at}})
	if err != nil || out.LockDelayAfter != time.Minute || out.Ending.Cause != metadata.EndingForced {
		t.Fatal(out, err)
	}
	if d := w.delay("pool"); d.Name != "pool#2" || d.Permits != 3 {
		t.Errorf("%+v", d)
	}
}

// A slow removal does not shorten the delay, because its lease is renewed.
func TestDelayLastsFromTheRemoval(t *testing.T) {
	t.Parallel()
	var renewed atomic.Int32
	line := &wire{any: func(method string) error {
		if method == "LeaseKeepAlive" {
			renewed.Add(1)
		}
		return nil
	}}
	w := behind(t, line)
	r := w.hold("a", uuid(1))
	var removed time.Time
	line.once(func(send func() error) error {
		time.Sleep(time.Second) // a slow etcd
		defer func() { removed = time.Now() }()
		return send()
	})
	w.remove(delayed(r, time.Minute))
	lease, _ := w.leaseOf(w.l.Delay("a"))
	left, err := w.etcd.TimeToLive(t.Context(), lease)
	proctest.Must(t, err)
	if n := renewed.Load(); n != 1 {
		t.Errorf("the lease was renewed %d times, want once", n)
	}
	if lasts := time.Since(removed) + time.Duration(left.TTL)*time.Second; lasts < time.Minute {
		t.Errorf("it lasts %v after the removal, want at least a minute", lasts)
	}
}

// Nothing that holders write can prevent the removal of their locks.
func TestDelayAfterAHostileHold(t *testing.T) {
	w := parallel(t)
	long := strings.Repeat("\x01", metadata.MaxTextBytes)
	r := w.hold("a", uuid(1), func(d *lockrecord.Draft) {
		d.Owner = long
		d.Hostname = long
		d.Purpose = long
	})
	w.remove(delayed(r, time.Minute))
	if d := w.delay("a"); d.Unreadable || d.UUID != uuid(1) ||
		!strings.HasPrefix(long, strings.TrimSuffix(d.Owner, "…")) {
		t.Errorf("%+v", d)
	}
}

func TestOperatorEndsOnlyTheDisplayedDelay(t *testing.T) {
	w := parallel(t)
	end := func(d metadata.LockDelay, id string) error {
		return w.endDelay(&d, protocol.Action{ID: id, At: metadata.Time{Time: at}, Reason: "it is off"})
	}
	see := func(id int) metadata.LockDelay {
		t.Helper()
		w.remove(delayed(w.hold("a", uuid(id)), time.Minute))
		return w.delay("a")
	}
	first := see(1)
	if err := w.endDelay(&first, protocol.Action{}); err == nil {
		t.Error("ended without a reason")
	}
	if err := end(first, "1"); err != nil || len(w.keys(w.l.Delays())) > 0 {
		t.Fatal(err, w.keys(w.l.Delays()))
	}
	second := see(2)
	if err := end(first, "2"); !errors.Is(err, metadata.ErrChanged) || len(w.keys(w.l.Delays())) != 1 {
		t.Errorf("the end of a delay that is over: %v; left: %v", err, w.keys(w.l.Delays()))
	}
	proctest.Must(t, end(second, "3"))
	if got := w.keys(w.l.Audits()); len(got) != 2 {
		t.Errorf("the audit trail has %v, want the two that were done", got)
	}
}
