package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// commands fakes the number of processes in each cgroup.
type commands struct {
	mu      sync.Mutex
	living  map[int64]int
	private []string
	err     error
	looks   atomic.Int64
}

func (c *commands) set(id int64, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.living = map[int64]int{id: n}
	c.err = err
}

func (c *commands) find(map[int64]bool) (map[int64]int, []string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks.Add(1)
	return c.living, c.private, c.err
}

func (c *commands) use(one *Witness) {
	one.cgroups = c.find
	one.open = func(int64, int64) (openedCgroup, error) { return nil, errors.New("the search finds it") }
	one.pauses.poll = 20 * time.Millisecond
}

// ofCommand is a process that has a command in this cgroup.
func (w *world) ofCommand(pid int, cgroup int64) metadata.Process {
	p := w.identity(pid)
	p.SupervisorStart = p.Start
	p.Start = 0
	p.CgroupID = cgroup
	return p
}

func TestHoldEndsWithItsProcessAndItsCommand(t *testing.T) {
	w := newWorld(t)
	c := &commands{living: map[int64]int{7: 0}}
	one := w.witness(c.use)
	process := w.sleeper()
	h := w.hold("a", process.Process.Pid, w.ofCommand(process.Process.Pid, 7))
	w.watches(one, 1)
	w.silent(h)
	if c.looks.Load() != 0 {
		t.Error("the cgroup was looked at before the process ended, which it says nothing about")
	}
	c.set(7, 2, nil)
	_ = process.Process.Kill()
	var said metadata.Statement
	w.eventually("a note that the command lives", func() bool {
		resp, err := w.etcd.Get(context.Background(), w.layout.Suspicion(h.UUID))
		if err != nil || len(resp.Kvs) == 0 {
			return false
		}
		said, err = protocol.Unmarshal[metadata.Statement](resp.Kvs[0].Value)
		return err == nil
	})
	if said.Cause != metadata.CauseCommandLives || said.EndedAt.IsZero() {
		t.Errorf("it says %+v", said)
	}
	contains(t, said.Reason, "left 2 processes of its command alive")
	w.silent(h)
	c.set(7, 0, nil)
	if s := w.death(h); s.Cause != metadata.CauseProcessEnded || !s.EndedAt.Equal(said.EndedAt.Time) {
		t.Errorf("it states %+v", s)
	}
}

func TestWitnessWithoutCgroupsProvesNothingAboutACommand(t *testing.T) {
	w := newWorld(t)
	c := &commands{err: errors.New("only a part of the cgroups is seen")}
	one := w.witness(c.use)
	process := w.sleeper()
	pid := process.Process.Pid
	h := w.hold("a", pid, w.ofCommand(pid, 7))
	odd := w.hold("b", pid, w.ofCommand(pid, -7))
	plain := w.hold("c", pid, w.identity(pid))
	w.watches(one, 2)
	_ = process.Process.Kill()
	w.death(plain)
	w.eventually("a look", func() bool { return c.looks.Load() > 0 })
	w.silent(h, odd)
	w.eventually("a warning",
		func() bool { return strings.Contains(one.log.String(), "whether the command of an ended") })
}

// openCommand is the open cgroup of a command.
type openCommand struct{ living, closed atomic.Int64 }

func (c *openCommand) CountProcesses() (int, error) { return int(c.living.Load()), nil }
func (c *openCommand) Close()                       { c.closed.Add(1) }

func TestPrivateCgroupHidesOnlyWhatIsInIt(t *testing.T) {
	w := newWorld(t)
	var open openCommand
	open.living.Store(1)
	c := &commands{private: []string{"/sys/fs/cgroup/private"}}
	process := w.sleeper()
	pid := process.Process.Pid
	one := w.witness(c.use, func(one *Witness) {
		one.open = func(_, id int64) (openedCgroup, error) {
			return &open, map[int64]error{8: &fs.PathError{Path: "/other", Err: fs.ErrPermission},
				9: fs.ErrNotExist}[id]
		}
	})
	opened := w.hold("a", pid, w.ofCommand(pid, 7))
	within := w.hold("b", pid, w.ofCommand(pid, 8))
	beside := w.hold("c", pid, w.ofCommand(pid, 9)) // as if its process had ended before the witness saw it
	w.watches(one, 3)
	_ = process.Process.Kill()
	w.death(beside)
	w.eventually("warnings that name the directories", func() bool {
		log := one.log.String()
		return strings.Contains(log, `"/sys/fs/cgroup/private"`) && strings.Contains(log, "/other")
	})
	w.silent(opened)
	open.living.Store(0)
	w.death(opened)
	w.silent(within)
	if open.closed.Load() != 1 {
		t.Errorf("the cgroup was closed %d times", open.closed.Load())
	}
}

func TestCommandIsGoneWithItsCgroup(t *testing.T) {
	w := newWorld(t)
	w.witness(func(one *Witness) {
		one.cgroups = func(map[int64]bool) (map[int64]int, []string, error) { return nil, nil, nil }
	})
	process := w.sleeper()
	h := w.hold("a", process.Process.Pid, w.ofCommand(process.Process.Pid, 7))
	_ = process.Process.Kill()
	_ = process.Wait()
	w.death(h)
}
