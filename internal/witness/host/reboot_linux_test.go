package host

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// rebooted is a world after a reboot, with a process of the earlier boot.
func rebooted(t *testing.T) (w *world, before metadata.Process) {
	before = metadata.Process{BootID: "aaaaaaaa-0000-4000-8000-000000000001"}
	w = newWorld(t)
	w.machine.Earlier = []string{before.BootID}
	return w, before
}

func TestRebootEndsHoldersOfEarlierBoots(t *testing.T) {
	w, before := rebooted(t)
	c := w.sleeper()
	now := w.identity(c.Process.Pid)
	other := metadata.Process{BootID: "aaaaaaaa-0000-4000-8000-000000000002"}
	handed := before
	handed.Detached = true
	holds := map[string]locktxn.Hold{
		"before": w.hold("before", 17, before), "other": w.hold("other", 17, other),
		"handed": w.hold("handed", 17, handed), "now": w.hold("now", c.Process.Pid, now),
		"container": w.hold("container", 1, before, func(d *lockrecord.Draft) { d.Hostname = "4f1e0c" }),
	}
	w.witness()
	for _, lock := range []string{"before", "container"} {
		if s := w.death(holds[lock]); s.Cause != metadata.CauseRebooted || !s.EndedAt.IsZero() ||
			s.Reason != "the machine "+w.machine.Hostname+" has booted since" {
			t.Errorf("%s: %+v", lock, *s)
		}
	}
	w.silent(holds["other"], holds["handed"], holds["now"])
}

func TestEarlierBootStillTakingLocksIsAnotherMachine(t *testing.T) {
	w, before := rebooted(t)
	old := w.hold("old", 17, before)
	one := w.witness()
	w.death(old)
	first := w.hold("first", 17, before)
	second := w.hold("second", 17, before)
	w.silent(first, second)
	if _, err := w.etcd.Delete(t.Context(), w.layout.Death(old.UUID)); err != nil { // its lease ended
		t.Fatal(err)
	}
	w.silent(old)
	if n := strings.Count(one.log.String(), "another machine has a copy of the state directory"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, one.log)
	}
}

// Locks taken while the watch was broken are only seen by the next list.
func TestEarlierBootTakingALockDuringABreakIsAnotherMachine(t *testing.T) {
	w, before := rebooted(t)
	store := lockstore.New(w.etcd, w.layout)
	watching := make(chan struct{})
	broken := make(chan struct{})
	var first sync.Once
	w.watch = func(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error {
		var err error
		first.Do(func() {
			close(watching)
			<-broken
			err = errors.New("the watch broke")
		})
		if err != nil {
			return err
		}
		return store.Watch(ctx, prefix, after, each)
	}
	one := w.witness()
	<-watching
	h := w.hold("a", 17, before)
	close(broken)
	w.silent(h)
	contains(t, one.log.String(), "another machine has a copy of the state directory")
}
