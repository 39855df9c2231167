package lockview_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// death returns a proof that the current holder of the lock has ended.
func death(t *testing.T, w *world, lock string, change ...func(*metadata.Statement)) metadata.Statement {
	t.Helper()
	kv, held := w.get(layout.Field(lock, lockrecord.FieldUUID))
	if !held {
		t.Fatalf("%s is not held", lock)
	}
	code := 137
	st := metadata.Statement{
		Name: lock, UUID: string(kv.Value), Token: kv.CreateRevision, Cause: metadata.CauseContainerEnded,
		Reason: "the kubelet says so", ExitCode: &code, Detail: "OOMKilled", Witness: metadata.WitnessKubernetes,
		By: "w-1",
	}
	for _, c := range change {
		c(&st)
	}
	return st
}

func stated(st metadata.Statement) op { return put(layout.Death(st.UUID), protocol.Marshal(st)) }

// alive returns the write of a holder's alive call.
func alive(lock string, n int) []op {
	at := fmt.Sprintf("15536%05d", 90_000+n)
	return []op{put(layout.Field(lock, lockrecord.FieldAlertAt), at),
		put(layout.Field(lock, lockrecord.FieldAutoUnlockAt), at), put(layout.Field(lock, lockrecord.FieldAlive), at)}
}

// died collects what a view reports.
type died struct {
	mu    sync.Mutex
	locks []string
}

func (d *died) add(r *metadata.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.locks = append(d.locks, r.Name)
}

func (d *died) want(t *testing.T, locks ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if got := strings.Join(d.locks, " "); got != strings.Join(locks, " ") {
		t.Errorf("reported as dead: %q, want %q", got, locks)
	}
	d.locks = nil
}

// followed runs what in a world with a lock "a" and another one, and with a view that follows it.
func followed(t *testing.T, what func(t *testing.T, w *world, v *lockview.View, d *died)) {
	t.Helper()
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		w.do(lock(t, "b", uuid(2))...)
		var d died
		v := run(t, w.source(), lockview.Options{RelistEvery: time.Minute, OnHolderDied: d.add})
		synctest.Wait()
		what(t, w, v, &d)
	})
}

func TestStatementIsAttachedToItsHold(t *testing.T) {
	followed(t, func(t *testing.T, w *world, v *lockview.View, d *died) {
		before := v.Lock("a")
		time.Sleep(7 * time.Second)
		changed := v.Changed()
		w.do(stated(death(t, w, "a")))
		synctest.Wait()
		r := v.Lock("a")
		if !r.ProvenDead() || *r.Death.ExitCode != 137 || r.Death.Detail != "OOMKilled" || r.Death.Revision != w.now() {
			t.Fatalf("%+v", r.Death)
		}
		if r.Death.Seen != 7*time.Second {
			t.Errorf("first seen at %v", r.Death.Seen)
		}
		if r.Seen != before.Seen || before.Death != nil || v.Lock("b").Death != nil {
			t.Error("the statement changed something else")
		}
		if v.Changed() == changed {
			t.Error("the death was not reported")
		}
		d.want(t, "a")

		w.do(alive("b", 1)...)
		w.do(put(layout.Field("a", "tenant"), "41")) // the record moves on, the hold does not
		time.Sleep(3 * time.Second)
		compared(t, v, w)
		if got := v.Lock("a").Death; got != r.Death {
			t.Errorf("the statement is another one: %+v", got)
		}
		d.want(t)

		w.do(remove(layout.Death(uuid(1)))) // or its lease expired
		synctest.Wait()
		if v.Lock("a").Death != nil {
			t.Error("a deleted statement still counts")
		}
	})
}

// A command looks once: to it, a proof is as old as it says.
func TestLoadedProofCountsFromItsOwnTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		w.do(stated(death(t, w, "a", func(st *metadata.Statement) {
			st.At = metadata.Time{Time: time.Now().Add(-5 * time.Minute)}
		})))
		v := lockview.New(layout, w.source(), lockview.Options{})
		proctest.Must(t, v.Load(t.Context()))
		if seen := v.Lock("a").Death.Seen; seen != -5*time.Minute {
			t.Errorf("it was first seen at %v", seen)
		}
	})
}

func TestStatementsWithoutALockAreBounded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		for i := range 11_000 {
			w.do(stated(metadata.Statement{Name: "none", UUID: fmt.Sprint("u", i), Token: 3}))
		}
		w.do(stated(death(t, w, "a")))
		v := run(t, w.source(), lockview.Options{})
		synctest.Wait()
		if n := v.Statements(); n > 10_001 {
			t.Errorf("%d statements are kept after a list", n)
		}
		for i := range 11_000 {
			w.do(stated(metadata.Statement{Name: "none", UUID: fmt.Sprint("v", i), Token: 3}))
		}
		synctest.Wait()
		if n := v.Statements(); n > 10_001 {
			t.Errorf("%d statements are kept after changes", n)
		}
		if !v.Lock("a").ProvenDead() {
			t.Error("a statement about a lock was dropped")
		}
	})
}
