package mutex_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func adopt(t testing.TB, c *mutex.Client, uuid string, opts ...mutex.Option) *mutex.Lock {
	t.Helper()
	l, err := c.Adopt(context.Background(), "a", uuid, opts...)
	proctest.Must(t, err)
	giveBack(t, l)
	return l
}

func TestChildHoldsWhatItsParentTook(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		parent := take(t, q.locks(), "a", mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(30*time.Minute))
		child := adopt(t, q.locks(), parent.UUID())
		if child.Name() != "a" || child.UUID() != parent.UUID() || child.Token() != parent.Token() ||
			mutex.FromContext(child.Context()) != child {
			t.Errorf("the child has %s %s token %d", child.Name(), child.UUID(), child.Token())
		}
		if d := child.Deadline().Sub(parent.Deadline()); d != 0 {
			t.Errorf("the deadlines are %v apart", d)
		}
		time.Sleep(time.Minute)
		alive(t, child, "2 of 3")
		doc := read(t, q.etcd, "a")
		if alert, unlock := doc.AlertAt.Sub(doc.Alive.At), doc.AutoUnlockAt.Sub(doc.Alive.At); alert !=
			10*time.Minute || unlock != 30*time.Minute || doc.Alive.Progress != "2 of 3" {
			t.Errorf("alert in %v, auto-unlock in %v, %q", alert, unlock, doc.Alive.Progress)
		}
		if !holds(t, q.etcd, child.Guard()) {
			t.Error("the guard does not hold")
		}
		unlock(t, child)
		<-parent.Lost() // who gives it back does so for both
		if err := parent.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
			t.Errorf("the parent's unlock: %v", err)
		}
	})
}

func TestAdoptRefusesAnotherProcessesHold(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		parent := take(t, q.locks(), "a", mutex.Purpose("invoices"))
		const notHeld = `lock "a" is not held as ` + foreignUUID
		for _, c := range []struct {
			about, uuid, want string
			change            func()
		}{
			{"it has another uuid", foreignUUID, notHeld + "; it is held by billing on host-1", func() {}},
			{"a person removed it", parent.UUID(),
				`: that hold was force-unlocked by ann just now: a mistake; nobody holds it`,
				func() { endHold(t, q.etcd, "a", metadata.EndingForced, "ann", "a mistake") }},
			{"nobody holds the lock", foreignUUID, notHeld + "; nobody holds it", func() {}},
		} {
			c.change()
			l, err := q.locks().Adopt(t.Context(), "a", c.uuid)
			if _, isLost := errors.AsType[*mutex.LostError](err); l != nil || !isLost ||
				!errors.Is(err, mutex.ErrNotHeld) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, %v", c.about, l, err)
			}
		}
	})
}

func TestParentAndChildSeeEachOthersExtensions(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		parent := take(t, q.locks(), "a", mutex.AutoUnlockAfter(time.Minute))
		locks := q.locks()
		child := adopt(t, locks, parent.UUID(), mutex.AutoUnlockAfter(time.Hour))
		time.Sleep(time.Second) // both are watched now
		alive(t, child)
		synctest.Wait()
		if d := time.Until(parent.Deadline()); d < 50*time.Minute {
			t.Errorf("the parent believes that it has %v", d)
		}
		alive(t, parent, "half") // an extension that is shorter than the child's
		if doc := read(t, q.etcd, "a"); doc.Alive.Progress != "half" || time.Until(doc.AutoUnlockAt) < 50*time.Minute {
			t.Errorf("then the record says %+v, auto-unlock in %v", doc.Alive, time.Until(doc.AutoUnlockAt))
		}
		again := adopt(t, locks, parent.UUID(), mutex.AutoUnlockAfter(3*time.Hour))
		alive(t, again)
		synctest.Wait()
		if d := time.Until(child.Deadline()); d < 2*time.Hour {
			t.Errorf("the child believes that it has %v", d)
		}
	})
}

func TestHoldIsHandedOver(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		parent := take(t, q.locks(), "a", mutex.AutoUnlockAfter(time.Hour))
		parent.Detach()
		if cause := context.Cause(parent.Context()); cause != mutex.ErrDetached || !errors.Is(cause, mutex.ErrNotHeld) {
			t.Errorf("the cause is %v", cause)
		}
		if err := parent.Unlock(); err != nil || read(t, q.etcd, "a").UUID != parent.UUID() {
			t.Errorf("unlock after detach: %v", err)
		}
		if err := parent.Alive(t.Context()); !errors.Is(err, mutex.ErrDetached) {
			t.Errorf("alive after detach: %v", err)
		}
		adopt(t, q.locks(), parent.UUID())
	})
}

func TestAdoptionKeepsTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour), mutex.SafetyMargin(time.Minute))
		adopt(t, locks, parent.UUID(), mutex.AutoUnlockAfter(10*time.Second)).Detach() // the default margin is shorter
		time.Sleep(50 * time.Minute)
		f.latency.Store(int64(time.Second))
		ends(t, adopt(t, locks, parent.UUID(), mutex.SafetyMargin(time.Minute)), 59*time.Minute)
	})
}

// The child's clock is behind the parent's. The record shows that it cannot be that early.
func TestAdoptionWithAClockThatIsBehind(t *testing.T) {
	bubbleWith(t, mutex.Options{Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }},
		func(t *testing.T, f *fake, slow *mutex.Client) {
			locks := newClient(t, f.client(), mutex.Options{})
			parent := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
			child := adopt(t, slow, parent.UUID())
			if d := time.Until(child.Deadline()); d > time.Hour {
				t.Errorf("the child believes that it has %v", d)
			}
		})
}

func TestAdoptionExtendsAnOverdueHold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AlertAfter(20*time.Minute), mutex.AutoUnlockAfter(time.Hour))
		alert := read(t, f.etcd, "a").AlertAt
		time.Sleep(3 * time.Hour)
		adopt(t, locks, parent.UUID())
		if now := read(t, f.etcd, "a"); time.Until(now.AutoUnlockAt) != time.Hour || !now.AlertAt.Equal(alert) {
			t.Errorf("auto-unlock in %v, alert moved to %v", time.Until(now.AutoUnlockAt), now.AlertAt)
		}
	})
}

func TestAdoptedHoldWithoutReadableTimesCanBeReleased(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		f.put("/mutexes/a/uuid", foreignUUID)
		f.put("/mutexes/a/auto_unlock_at", metadata.FormatTime(time.Now().Add(time.Hour)))
		l := adopt(t, locks, foreignUUID)
		if err := l.Alive(context.Background()); err == nil || !strings.Contains(err.Error(),
			"adopt it with AutoUnlockAfter") {
			t.Errorf("alive: %v", err)
		}
		l.Detach()
		f.put("/mutexes/a/auto_unlock_at", "soon")
		l = adopt(t, locks, foreignUUID)
		<-l.Lost()
		unlock(t, l)
		if doc := read(t, f.etcd, "a"); len(doc.Fields) > 0 {
			t.Errorf("the record stays: %+v", doc.Record)
		}
	})
}

// A script under the process reports progress, as mutexctl alive does; the process's heartbeat must not overwrite it.
func TestHeartbeatKeepsProgressAndAlertOfAScript(t *testing.T) {
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
	})
}

// Parent and child each send heartbeats for one hold; neither mistakes the other's for progress.
func TestHeartbeatsOfParentAndChildDoNotPostponeTheAlert(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.AlertAfter(10*time.Minute), mutex.AutoUnlockAfter(time.Minute),
			mutex.Heartbeat(24*time.Hour))
		alert := time.Now().Add(10 * time.Minute)
		child := adopt(t, locks, l.UUID(), mutex.Heartbeat(time.Hour))
		time.Sleep(30 * time.Minute)
		if at := read(t, f.etcd, "a").AlertAt; at.After(alert) {
			t.Errorf("the alert is put off to %v, want %v", at, alert)
		}
		proctest.Must(t, context.Cause(child.Context()))
		child.Detach()
		time.Sleep(30 * time.Minute)
		unlock(t, l)
	})
}

func TestAdoptedAlertIsNotAfterTheAutoUnlock(t *testing.T) {
	bubbles(t, map[string][]mutex.Option{"a shorter time": nil,
		"a short heartbeat": opts(mutex.Heartbeat(65 * time.Second))},
		func(t *testing.T, f *fake, locks *mutex.Client, o []mutex.Option) {
			parent := take(t, locks, "a", mutex.AlertAfter(90*time.Second), mutex.AutoUnlockAfter(2*time.Minute))
			child := adopt(t, locks, parent.UUID(), append(o, mutex.AutoUnlockAfter(time.Minute))...)
			time.Sleep(100 * time.Second)
			alive(t, child)
			if doc := read(t, f.etcd, "a"); doc.AlertAt.After(doc.AutoUnlockAt) {
				t.Errorf("alert in %v, auto-unlock in %v", time.Until(doc.AlertAt), time.Until(doc.AutoUnlockAt))
			}
		})
}

func TestAdoptersHeartbeatKeepsTheAlertOfTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AlertAfter(5*time.Minute), mutex.AutoUnlockAfter(10*time.Minute))
		child := adopt(t, locks, parent.UUID(), mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(time.Minute))
		alive(t, child)
		alert := time.Now().Add(5 * time.Minute)
		time.Sleep(30 * time.Minute)
		if at := read(t, f.etcd, "a").AlertAt; !at.Equal(alert) {
			t.Errorf("the alert is at %v, want %v", at, alert)
		}
	})
}

func TestReservationOutlivesItsMaker(t *testing.T) {
	queue(t, func(t *testing.T, q *fake) {
		locks := newClient(t, q.client(), mutex.Options{Defaults: opts(mutex.Heartbeat(time.Minute))})
		r, err := locks.Reserve(t.Context(), "db", "maintenance, OPS-12", 2*time.Hour)
		proctest.Must(t, err)
		proctest.Must(t, locks.Close())
		time.Sleep(time.Hour)
		now := read(t, q.etcd, "db")
		if now.UUID != r.UUID || now.Token != r.Token || r.Name != "db" || !now.AutoUnlockAt.Equal(r.Until) ||
			time.Until(r.Until) != time.Hour || now.Purpose != "maintenance, OPS-12" ||
			now.Attributes["reserved"] != true || !now.AlertAt.Equal(now.AutoUnlockAt) || now.Alive != nil {
			t.Errorf("the reservation says %+v, the record %+v", r, now.Record)
		}
		l, err := q.locks().Adopt(t.Context(), r.Name, r.UUID)
		proctest.Must(t, err)
		unlock(t, l)
	})
}

// process returns the holder's process according to the record of lock "a".
func process(t testing.TB, etcd *clientv3.Client) metadata.Process {
	t.Helper()
	if p := read(t, etcd, "a").Process; p != nil {
		return *p
	}
	return metadata.Process{}
}

// state writes a witness's statement about the hold of lock "a".
func state(t testing.TB, etcd *clientv3.Client) error {
	t.Helper()
	r := read(t, etcd, "a")
	return lockstore.New(etcd, layout(t)).RecordProof(t.Context(), metadata.Statement{
		Name: "a", UUID: r.UUID, Token: r.Token,
		Cause: metadata.CauseProcessEnded, Witness: "host", By: "w1"})
}

func TestTheRecordIdentifiesTheProcess(t *testing.T) {
	queues(t, map[string]*metadata.Process{
		"as this process is": nil,
		"as it is told to": {BootID: "b", Start: 17, PIDNamespace: 4, PodNamespace: "n", PodName: "p", PodUID: "u",
			Container: "c"},
		"not at all": {},
	}, func(t *testing.T, q *fake, given *metadata.Process) {
		take(t, newClient(t, q.client(), mutex.Options{Process: given}), "a")
		want := holderproc.Self(holderproc.System())
		if given != nil {
			want = *given
		}
		if got := process(t, q.etcd); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if pid := read(t, q.etcd, "a").PID; pid != int64(os.Getpid()) {
			t.Errorf("the process id is %d", pid)
		}
	})
}

func TestAdoptedHoldSurvivesDeathOfFirstProcess(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
		proctest.Must(t, state(t, f.etcd)) // too early, or true: it ended right after it handed the hold on
		child := adopt(t, newClient(t, f.client()), parent.UUID())
		if !process(t, f.etcd).Detached {
			t.Error("the record does not say that the hold is detached")
		}
		if err := state(t, f.etcd); !errors.Is(err, metadata.ErrChanged) {
			t.Errorf("a witness says that the first process ended: %v", err)
		}
		if n := etcdtest.Count(t, f.etcd, layout(t).Deaths()); n != 0 {
			t.Errorf("%d statements are left", n)
		}
		if parent.Context().Err() != nil {
			t.Errorf("the parent lost it: %v", context.Cause(parent.Context()))
		}
		child.Unlock()
		<-parent.Lost()
	})
}

func TestReportingForTheHolderKeepsItsIdentity(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		tool := adopt(t, newClient(t, f.client()), l.UUID(), mutex.OnBehalfOfHolder())
		alive(t, tool, "half")
		tool.Detach()
		if process(t, f.etcd).Detached {
			t.Error("the record says that the hold is detached")
		}
		proctest.Must(t, state(t, f.etcd))
	})
}

func TestDetachIsRecordedOnceEtcdIsBack(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		f.away.Store(true)
		l.Detach()
		f.away.Store(false)
		time.Sleep(time.Minute)
		if p := read(t, f.etcd, "a").Process; p == nil || !p.Detached {
			t.Errorf("the record says %+v", p)
		}
	})
}
