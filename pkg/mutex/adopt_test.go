package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// family is a process that holds lock "a", and its child, each with its own connection.
func family(t *testing.T, opts ...mutex.Option) (etcd *clientv3.Client, parent *mutex.Lock, child *mutex.Client) {
	server := etcdtest.Shared(t)
	etcd = server.Client(t)
	return etcd, take(t, newClient(t, etcd), "a", opts...), newClient(t, server.Client(t))
}

func adopt(t testing.TB, c *mutex.Client, uuid string, opts ...mutex.Option) *mutex.Lock {
	t.Helper()
	l, err := c.Adopt(context.Background(), "a", uuid, opts...)
	if err != nil {
		t.Fatal(err)
	}
	giveBack(t, l)
	return l
}

func TestChildHoldsWhatItsParentTook(t *testing.T) {
	t.Parallel()
	etcd, parent, locks := family(t, mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(30*time.Minute))
	child := adopt(t, locks, parent.UUID())
	if child.Name() != "a" || child.UUID() != parent.UUID() || child.Token() != parent.Token() ||
		mutex.FromContext(child.Context()) != child {
		t.Errorf("the child has %s %s token %d", child.Name(), child.UUID(), child.Token())
	}
	if d := child.Deadline().Sub(parent.Deadline()).Abs(); d > 10*time.Second { // each reads two clocks in turn
		t.Errorf("the deadlines are %v apart", d)
	}
	alive(t, child, "2 of 3")
	doc := read(t, etcd, "a")
	if alert, unlock := doc.AlertAt.Sub(doc.Alive.At), doc.AutoUnlockAt.Sub(doc.Alive.At); alert != 10*time.Minute ||
		unlock != 30*time.Minute || doc.Alive.Progress != "2 of 3" {
		t.Errorf("alert in %v, auto-unlock in %v, %q", alert, unlock, doc.Alive.Progress)
	}
	r, err := etcd.Txn(context.Background()).If(child.Guard()).Then(clientv3.OpPut("/x", "1")).Commit()
	if err != nil || !r.Succeeded {
		t.Errorf("the guard does not hold: %v", err)
	}
	unlock(t, child)
	wantEmpty(t, etcd)
	<-parent.Lost() // who gives it back does so for both
	if err := parent.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
		t.Errorf("the parent's unlock: %v", err)
	}
}

func TestHoldOfAnotherIsNotAdopted(t *testing.T) {
	etcd, parent, locks := family(t, mutex.Purpose("invoices"))
	const other = "11111111-2222-4333-8444-555555555555"
	for _, c := range []struct {
		about, uuid, want string
		change            func()
	}{
		{"it has another uuid", other, `lock "a" is not held as ` + other + "; it is held by billing on host-1",
			func() {}},
		{"a person removed it", parent.UUID(),
			`: that hold was force-unlocked by ann just now: a mistake; nobody holds it`,
			func() { removeWith(t, etcd, metadata.EndedForced, "ann", "a mistake") }},
		{"nobody holds the lock", other, `lock "a" is not held as ` + other + "; nobody holds it", func() {}},
	} {
		c.change()
		l, err := locks.Adopt(context.Background(), "a", c.uuid)
		if _, isLost := errors.AsType[*mutex.LostError](err); l != nil || !isLost ||
			!errors.Is(err, mutex.ErrNotHeld) || !strings.Contains(justNow(err.Error()), c.want) {
			t.Errorf("%s: %v, %v", c.about, l, err)
		}
	}
}

func TestEachSeesThatTheOtherExtends(t *testing.T) {
	t.Parallel()
	etcd, parent, locks := family(t, mutex.AutoUnlockAfter(time.Minute))
	child := adopt(t, locks, parent.UUID(), mutex.AutoUnlockAfter(time.Hour))
	alive(t, child)
	etcdtest.Eventually(
		t,
		"the parent's new deadline",
		func() bool { return time.Until(parent.Deadline()) > 50*time.Minute },
	)
	if err := parent.Alive(context.Background(), "half"); err != nil {
		t.Errorf("an extension that is shorter than the child's: %v", err)
	}
	if doc := read(t, etcd, "a"); doc.Alive.Progress != "half" || time.Until(doc.AutoUnlockAt) < 50*time.Minute {
		t.Errorf("then the record says %+v, auto-unlock in %v", doc.Alive, time.Until(doc.AutoUnlockAt))
	}
	again := adopt(t, locks, parent.UUID(), mutex.AutoUnlockAfter(3*time.Hour))
	alive(t, again)
	etcdtest.Eventually(t, "the child's new deadline", func() bool {
		return time.Until(child.Deadline()) > 2*time.Hour
	})
	again.Detach()
	child.Detach()
	parent.Unlock()
}

func TestHoldIsHandedOver(t *testing.T) {
	etcd, parent, locks := family(t, mutex.AutoUnlockAfter(time.Hour))
	parent.Detach()
	if cause := context.Cause(parent.Context()); cause != mutex.ErrDetached || !errors.Is(cause, mutex.ErrNotHeld) {
		t.Errorf("the cause is %v", cause)
	}
	if err := parent.Unlock(); err != nil || read(t, etcd, "a").UUID != parent.UUID() {
		t.Errorf("unlock after detach: %v", err)
	}
	if err := parent.Alive(context.Background()); !errors.Is(err, mutex.ErrDetached) {
		t.Errorf("alive after detach: %v", err)
	}
	child := adopt(t, locks, parent.UUID())
	unlock(t, child)
}

func TestAdoptedHoldKeepsItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AlertAfter(20*time.Minute), mutex.AutoUnlockAfter(time.Hour),
			mutex.SafetyMargin(time.Minute))
		time.Sleep(50 * time.Minute)
		f.latency.Store(int64(time.Second))
		start := time.Now()
		child := adopt(t, locks, parent.UUID(), mutex.SafetyMargin(time.Minute))
		if d := child.Deadline().Sub(start); d != 9*time.Minute {
			t.Errorf("the child has %v from before it asked, want 9m", d)
		}
		<-child.Lost()
		unlock(t, parent)
	})
}

// The child's clock is behind the parent's. The record shows that it cannot be that early.
func TestAdoptingWithAClockThatIsBehind(t *testing.T) {
	bubbleWith(t, mutex.Options{Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }},
		func(t *testing.T, f *fake, slow *mutex.Client) {
			locks := newClient(t, f.client(), mutex.Options{})
			parent := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
			child := adopt(t, slow, parent.UUID())
			if d := time.Until(child.Deadline()); d > time.Hour {
				t.Errorf("the child believes that it has %v", d)
			}
			unlock(t, parent)
		})
}

func TestHoldWhoseTimeIsOverIsExtendedByItsAdoption(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AlertAfter(20*time.Minute), mutex.AutoUnlockAfter(time.Hour))
		alert := read(t, f.etcd, "a").AlertAt
		time.Sleep(3 * time.Hour)
		child := adopt(t, locks, parent.UUID())
		if d := time.Until(read(t, f.etcd, "a").AutoUnlockAt); d != time.Hour {
			t.Errorf("auto-unlock in %v", d)
		}
		if at := read(t, f.etcd, "a").AlertAt; !at.Equal(alert) {
			t.Errorf("the adoption moved the alert to %v", at)
		}
		unlock(t, child)
		parent.Unlock()
	})
}

func TestHoldWhoseRecordDoesNotTellItsTimesCanBeGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		const uuid = "11111111-2222-4333-8444-555555555555"
		f.put("/mutexes/a/uuid", uuid)
		f.put("/mutexes/a/auto_unlock_at", metadata.FormatTime(time.Now().Add(time.Hour)))
		l := adopt(t, locks, uuid)
		if err := l.Alive(context.Background()); err == nil || !strings.Contains(err.Error(),
			"adopt it with AutoUnlockAfter") {
			t.Errorf("alive: %v", err)
		}
		l.Detach()
		f.put("/mutexes/a/auto_unlock_at", "soon")
		l = adopt(t, locks, uuid)
		<-l.Lost()
		if err := l.Unlock(); err != nil {
			t.Errorf("unlock: %v", err)
		}
		if doc := read(t, f.etcd, "a"); len(doc.Fields) > 0 {
			t.Errorf("the record stays: %+v", doc.Record)
		}
	})
}

// A script under the process reports progress, as mutexctl alive does; the process's heartbeat must not overwrite it.
func TestHeartbeatKeepsWhatAScriptSaid(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(2*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(24*time.Hour))
		time.Sleep(91 * time.Second)
		script := adopt(t, locks, l.UUID(), mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(time.Minute))
		alive(t, script, "3 of 12")
		script.Detach()
		said := read(t, f.etcd, "a").AlertAt
		if d := time.Until(said); d != 10*time.Minute {
			t.Fatalf("the script put the alert off by %v", d)
		}
		for range 20 {
			time.Sleep(20 * time.Second)
			doc := read(t, f.etcd, "a")
			if doc.AlertAt.Before(said) || doc.Alive.Progress != "3 of 12" {
				t.Fatalf("after %v the heartbeat has set the alert to %v, before %v, and says %q",
					time.Since(said)+10*time.Minute, doc.AlertAt, said, doc.Alive.Progress)
			}
			if d := time.Until(doc.AutoUnlockAt); d < 40*time.Second {
				t.Fatalf("the heartbeat stopped: auto-unlock in %v", d)
			}
		}
		time.Sleep(10 * time.Minute)
		if at := read(t, f.etcd, "a").AlertAt; !at.Equal(said) {
			t.Errorf("the heartbeat put off the alert to %v, the script wanted %v", at, said)
		}
		alive(t, l, "done")
		if doc := read(t, f.etcd, "a"); time.Until(doc.AlertAt) > 2*time.Minute || doc.Alive.Progress != "done" {
			t.Errorf("then the process itself says: alert in %v, %q", time.Until(doc.AlertAt), doc.Alive.Progress)
		}
		l.Unlock()
	})
}

// Parent and child each send heartbeats for one hold; neither mistakes the other's for progress.
func TestHeartbeatsOfParentAndChildDoNotPutOffTheAlert(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(24*time.Hour))
		alert := time.Now().Add(10 * time.Minute)
		child := adopt(t, locks, l.UUID(), mutex.Heartbeat(time.Hour))
		time.Sleep(30 * time.Minute)
		if at := read(t, f.etcd, "a").AlertAt; at.After(alert) {
			t.Errorf("the alert is put off to %v, want %v", at, alert)
		}
		if err := context.Cause(child.Context()); err != nil {
			t.Errorf("the child's handle ended: %v", err)
		}
		child.Detach()
		time.Sleep(30 * time.Minute)
		unlock(t, l)
	})
}

func TestReservationOutlivesWhoMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ctx := context.Background()
		locks := newClient(t, f.client(), mutex.Options{Defaults: opts(mutex.Heartbeat(time.Minute))})
		r, err := locks.Reserve(ctx, "db", "maintenance, OPS-12", 2*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		now := read(t, f.etcd, "db")
		if now.UUID != r.UUID || now.Token != r.Token || r.Lock != "db" || !now.AutoUnlockAt.Equal(r.Until) ||
			time.Until(r.Until) != time.Hour {
			t.Errorf("the reservation says %+v, the record %+v", r, now.Record)
		}
		if now.Purpose != "maintenance, OPS-12" || now.Attributes["reserved"] != true ||
			!now.AlertAt.Equal(now.AutoUnlockAt) || now.Alive != nil {
			t.Errorf("the record is %+v", now.Record)
		}

		later := newClient(t, f.client(), mutex.Options{})
		if _, err := later.TryReserve(ctx, "db", "me, too", time.Hour); err == nil || !strings.Contains(err.Error(),
			`for "maintenance, OPS-12"`) {
			t.Errorf("a second one: %v", err)
		}
		l, err := later.Adopt(ctx, r.Lock, r.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil || read(t, f.etcd, "db").Token != 0 {
			t.Errorf("released: %v", err)
		}
		if err := later.Close(); err != nil {
			t.Error(err)
		}
	})
}
