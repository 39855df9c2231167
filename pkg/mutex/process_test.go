package mutex_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
	return lockstore.New(etcd, layout(t)).State(t.Context(), metadata.Statement{Lock: "a", UUID: r.UUID, Token: r.Token,
		Cause: metadata.CauseProcessEnded, Witness: "host", By: "w1"})
}

func TestTheRecordIdentifiesTheProcess(t *testing.T) {
	type identity struct {
		given *metadata.Process
		want  metadata.Process
	}
	given := metadata.Process{BootID: "b", Start: 17, PIDNamespace: 4, PodNamespace: "n", PodName: "p", PodUID: "u",
		Container: "c"}
	self := holderproc.Self(holderproc.System())
	queues(t, map[string]identity{
		"as this process is": {nil, self}, "as it is told to": {&given, given}, "not at all": {given: &metadata.Process{}},
	}, func(t *testing.T, q *fake, c identity) {
		take(t, newClient(t, q.client(), mutex.Options{Process: c.given}), "a")
		if got := process(t, q.etcd); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
		if pid := read(t, q.etcd, "a").PID; pid != int64(os.Getpid()) {
			t.Errorf("the process id is %d", pid)
		}
	})
	if runtime.GOOS == "linux" && self.Start == 0 {
		t.Errorf("nothing identifies this process: %+v", self)
	}
}

func TestAnAdoptedHoldIsNotAbandonedWhenItsFirstProcessEnds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		parent := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
		if err := state(t, f.etcd); err != nil { // too early, or true: it ended right after it handed the hold on
			t.Fatal(err)
		}
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

func TestWhoReportsForTheHolderDoesNotTakeItsPlace(t *testing.T) {
	holding(t, func(t *testing.T, f *fake, l *mutex.Lock) {
		tool := adopt(t, newClient(t, f.client()), l.UUID(), mutex.ForHolder())
		alive(t, tool, "half")
		tool.Detach()
		if process(t, f.etcd).Detached {
			t.Error("the record says that the hold is detached")
		}
		if err := state(t, f.etcd); err != nil {
			t.Errorf("a witness: %v", err)
		}
	})
}

func TestDetachIsToldToEtcdWhenItAnswersAgain(t *testing.T) {
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
