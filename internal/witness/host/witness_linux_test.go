package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestStatementHasTheSignalOfAKilledProcess(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world, change ...func(*Witness)) {
		one := w.witness(change...)
		c := w.sleeper()
		before := w.hold("before", c.Process.Pid, w.identity(c.Process.Pid))
		w.watches(one, 1)
		after := w.hold("after", c.Process.Pid, w.identity(c.Process.Pid))
		w.silent(before, after)
		killed := time.Now()
		identity := w.identity(c.Process.Pid)
		if err := c.Process.Kill(); err != nil { // without reaping it
			t.Fatal(err)
		}
		for _, h := range []locktxn.Hold{before, after} {
			s := w.death(h)
			if s.Cause != metadata.CauseProcessEnded || s.EndedAt.Before(killed.Add(-time.Microsecond)) ||
				s.EndedAt.After(time.Now()) || s.Signal != "SIGKILL" || s.ExitCode != nil ||
				s.Reason != "process "+strconv.Itoa(c.Process.Pid)+" on "+w.machine.Hostname+" ended" {
				t.Errorf("%s: %+v", h.Lock, *s)
			}
		}
		if s := w.death(w.hold("found", c.Process.Pid, identity)); !s.EndedAt.IsZero() {
			t.Errorf("found dead: %+v", *s)
		}
	})
}

func TestProcessReapedDuringALookIsNotHidden(t *testing.T) {
	for want, look := range map[any]func(w watcher, p proc) any{
		absent:   func(w watcher, p proc) any { w.handle = nil; return w.check(p) },
		int64(9): func(w watcher, p proc) any { status, _ := w.exit(p); return status },
	} {
		c := (&world{TB: t}).sleeper()
		pid := int64(c.Process.Pid)
		handle, err := openProcess(pid)
		proctest.Must(t, err)
		f := newFake(t)
		stat := f.path(strconv.FormatInt(pid, 10), "stat")
		proctest.Must(t, os.MkdirAll(filepath.Dir(stat), 0o755))
		proctest.Must(t, syscall.Mkfifo(stat, 0o600))
		seen := make(chan any)
		go func() { seen <- look(watcher{pid, 1, handle}, f.proc) }()
		pipe, err := os.OpenFile(stat, os.O_WRONLY, 0) // waits for the look to read it
		proctest.Must(t, err)
		_ = c.Process.Kill()
		_ = c.Wait()
		pipe.Close()
		if got := <-seen; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestStatementHasTheExitCode(t *testing.T) {
	w := newWorld(t)
	one := w.witness()
	c, in := w.start("sh", "-c", "read line; exit 7")
	h := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
	w.watches(one, 1)
	in.Close()
	_ = c.Wait()
	if s := w.death(h); s.ExitCode == nil || *s.ExitCode != 7 || s.Signal != "" {
		t.Errorf("%+v", *s)
	}
	w.shows(one, `w_statements_total{cause="process_ended"} 1`)
	w.shows(one, `w_statements_total{cause="rebooted"} 0`)
	if problems, err := testutil.CollectAndLint(one.Collector("w")); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	contains(t, one.log.String(), `"cause":"process_ended"`, `"lock":"a"`)
}

func TestHoldSurvivesExec(t *testing.T) {
	w := newWorld(t)
	one := w.witness()
	c, in := w.start("sh", "-c", "read line; exec sleep 600")
	h := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
	w.watches(one, 1)
	in.Close()
	w.eventually("the exec", func() bool {
		name, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/comm")
		return err == nil && string(name) == "sleep\n"
	})
	w.silent(h)
	_ = c.Process.Kill()
	w.death(h)
}

func TestHoldSurvivesExitOfMainThread(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world, change ...func(*Witness)) {
		one := w.witness(change...)
		program, err := os.Executable()
		proctest.Must(w, err)
		c := w.child("env", envThread+"=1", program)
		w.eventually("the end of the first thread", func() bool {
			s, err := one.processes.proc.stat(int64(c.Process.Pid))
			return err == nil && s.State == 'Z' && s.Threads > 1
		})
		h := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
		w.watches(one, 1)
		w.silent(h)
		_ = c.Process.Kill()
		w.death(h)
	})
}

func TestRecordWrittenByHandIsEquivalent(t *testing.T) {
	w := newWorld(t)
	c := w.sleeper()
	self := w.identity(c.Process.Pid)
	script := fmt.Sprintf(`process_start=$(sed 's/.*) //' /proc/%[1]d/stat | cut -d ' ' -f 20)
		pid_namespace=$(readlink /proc/%[1]d/ns/pid | tr -dc 0-9)
		echo $process_start $pid_namespace`, c.Process.Pid)
	if page, err := os.ReadFile("../../../docs/shell.md"); err != nil ||
		!strings.Contains(string(page), "process_start=$(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20)") ||
		!strings.Contains(string(page), "pid_namespace=$(readlink /proc/$$/ns/pid | tr -dc 0-9)") {
		t.Errorf("the handbook has another script, %v", err)
	}
	out, err := exec.Command("sh", "-c", script).Output()
	start, namespace, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || start != strconv.FormatInt(self.Start, 10) ||
		namespace != strconv.FormatInt(self.PIDNamespace, 10) {
		t.Fatalf("the script says %q, %v; want %+v", out, err, self)
	}
	if !w.machine.MayHold([]metadata.Field{{Name: lockrecord.FieldBootID, Value: self.BootID}}) {
		t.Error("a record of plain keys is left out")
	}
}

func TestHoldWithAChangedProcessIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	one := w.witness()
	c, h := w.holder("a")
	w.watches(one, 1)
	etcdtest.Put(t, w.etcd, w.layout.Field("a", "pid"), "1")
	w.eventually("no lock of this process", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, p := range one.running {
			if len(p.locks) > 0 {
				return false
			}
		}
		return true
	})
	_ = c.Process.Kill()
	w.silent(h)
}

func TestReusedProcessIDProvesDeath(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world, change ...func(*Witness)) {
		c := w.sleeper()
		living := w.hold("living", c.Process.Pid, w.identity(c.Process.Pid))
		former := w.identity(c.Process.Pid)
		former.Start--
		h := w.hold("former", c.Process.Pid, former)
		w.witness(change...)
		if s := w.death(h); s.Cause != metadata.CauseProcessEnded || !s.EndedAt.IsZero() {
			t.Errorf("%+v", *s)
		}
		w.silent(living)
	})
}

func TestHoldersElsewhereAreIgnored(t *testing.T) {
	w := newWorld(t)
	c := w.sleeper()
	pid := c.Process.Pid
	self := w.identity(pid)
	_ = c.Process.Kill()
	_ = c.Wait()
	gone := func(change func(*metadata.Process)) metadata.Process {
		p := self
		change(&p)
		return p
	}
	holds := []locktxn.Hold{
		w.hold("another machine of the same name", pid, gone(func(p *metadata.Process) { p.BootID = "another" })),
		w.hold("no boot id", pid, gone(func(p *metadata.Process) { p.BootID = "" })),
		w.hold("no start", pid, gone(func(p *metadata.Process) { p.Start = 0 })),
		w.hold("no namespace", pid, gone(func(p *metadata.Process) { p.PIDNamespace = 0 })),
		w.hold("a cgroup beside the name that knows none", pid, gone(func(p *metadata.Process) { p.CgroupID = 7 })),
		w.hold("detached", pid, gone(func(p *metadata.Process) { p.Detached = true })),
		w.hold("no pid", 0, self),
		w.hold("nothing", pid, metadata.Process{}),
		w.hold("purpose", pid, metadata.Process{}, func(d *lockrecord.Draft) { d.Purpose = w.machine.BootID }),
	}
	elsewhere := gone(func(p *metadata.Process) { p.BootID = "another" })
	ours := func(d *lockrecord.Draft) { d.Purpose = w.machine.BootID }
	adopted := w.hold("adopted", pid, self)
	w.commit(locktxn.Detach(w.layout, adopted))
	holds = append(holds, adopted, w.hold("another machine that names our boot", pid, elsewhere, ours))
	one := w.witness()
	w.silent(holds...)
	w.silent(w.hold("the same, while the witness watches", pid, elsewhere, ours))
	if log := one.log.String(); strings.Contains(log, "copy of the state directory") {
		t.Errorf("the witness takes a stranger's record for one of this machine: %s", log)
	}
}

// A look may happen while /proc does not show a process, or only in part.
func TestSingleEmptyScanProvesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.sleeper()
	var missed atomic.Bool
	one := w.witness(func(one *Witness) {
		open := one.processes.open
		one.processes.open = func(pid int64) (*handle, error) {
			if pid == int64(c.Process.Pid) && !missed.Swap(true) {
				return nil, unix.ESRCH
			}
			return open(pid)
		}
	})
	h := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
	w.eventually("the first look", missed.Load)
	if w.silent(h); t.Failed() {
		return // nobody watches it
	}
	w.watches(one, 1)
	_ = c.Process.Kill()
	w.death(h)
}

func TestDetachedOrEndedHoldIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	one := w.witness()
	c := w.sleeper()
	self := w.identity(c.Process.Pid)
	detached := w.hold("detached", c.Process.Pid, self)
	released := w.hold("released", c.Process.Pid, self)
	kept := w.hold("kept", c.Process.Pid, self)
	w.watches(one, 1)
	w.commit(locktxn.Detach(w.layout, detached))
	w.commit(locktxn.Release(w.layout, released))
	next := w.hold("released", os.Getpid(), w.identity(os.Getpid()))
	_ = c.Process.Kill()
	w.death(kept)
	w.silent(detached, released, next)
}

func TestMissingStatementIsRewritten(t *testing.T) {
	w := newWorld(t)
	var record func(context.Context, metadata.Statement) error
	var losesFirst sync.Once // before its answer arrives
	one := w.witness(func(one *Witness) {
		one.pauses.viewLag = 10 * time.Millisecond
		record, one.cfg.RecordProof = one.cfg.RecordProof, func(ctx context.Context, s metadata.Statement) error {
			err := record(ctx, s)
			losesFirst.Do(func() {
				if _, failed := w.etcd.Delete(ctx, w.layout.Death(s.UUID)); failed != nil {
					t.Error(failed)
				}
				w.hold("later", os.Getpid(), w.identity(os.Getpid()))
				w.eventually("a view without it", func() bool {
					one.mu.Lock()
					defer one.mu.Unlock()
					return one.locks["later"] != nil
				})
			})
			return err
		}
	})
	c, h := w.holder("a")
	_ = c.Process.Kill()
	w.death(h)
	w.eventually("the statement in the view", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.locks["a"].inView
	})
	if _, err := w.etcd.Delete(t.Context(), w.layout.Death(h.UUID)); err != nil { // its lease ended
		t.Fatal(err)
	}
	w.death(h)
}

func TestRecoveredWitnessReportsSo(t *testing.T) {
	denied := errors.New("permission denied")
	t.Run("when the rights are granted", func(t *testing.T) {
		w := newWorld(t)
		var granted atomic.Bool
		one := w.witness(func(one *Witness) {
			one.pauses.retry = 10 * time.Millisecond
			one.cfg.CheckWritable = func(context.Context) error {
				if granted.Load() {
					return nil
				}
				return denied
			}
		})
		w.eventually("the problem", func() bool {
			err := one.Synced()
			return err != nil && strings.Contains(err.Error(), "etcd does not accept statements")
		})
		w.shows(one, "w_may_state 0")
		granted.Store(true)
		w.eventually("the end of the problem", func() bool { return one.Synced() == nil })
		w.shows(one, "w_may_state 1")
	})
	t.Run("when the hold of which it could not is over", func(t *testing.T) {
		w := newWorld(t)
		var tries atomic.Int64
		one := w.witness(func(one *Witness) {
			one.pauses.retry, one.pauses.viewLag = time.Second, time.Microsecond
			one.cfg.RecordProof = func(context.Context, metadata.Statement) error {
				if tries.Add(1) > 10 {
					t.Error("it tries again at once")
				}
				return denied
			}
		})
		c, h := w.holder("a")
		_ = c.Process.Kill()
		w.eventually("the problem", func() bool {
			err := one.Synced()
			return err != nil && strings.Contains(err.Error(), "cannot record that a holder is dead")
		})
		w.commit(locktxn.Release(w.layout, h))
		w.eventually("the end of the problem", func() bool { return one.Synced() == nil })
	})
}

func TestRestartedWitnessRechecksEverything(t *testing.T) {
	w := newWorld(t)
	first := w.witness()
	c, other := w.sleeper(), w.sleeper()
	dies := w.hold("dies", c.Process.Pid, w.identity(c.Process.Pid))
	lives := w.hold("lives", other.Process.Pid, w.identity(other.Process.Pid))
	w.watches(first, 2)
	first.stop()
	_ = c.Process.Kill()
	_ = c.Wait()
	second := w.witness()
	if s := w.death(dies); !s.EndedAt.IsZero() || !strings.HasSuffix(s.Reason, "is gone") {
		t.Errorf("%+v", *s)
	}
	w.silent(lives)
	_ = other.Process.Kill()
	if s := w.death(lives); s.EndedAt.IsZero() {
		t.Errorf("%+v", *s)
	}
	second.stop()
}

func TestDeathsDuringAnOutageAreStatedAfterIt(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	direct := on(t, server.Client(t))
	far := on(t, server.Through(t, proxy.Endpoint()))
	far.pulse = 100 * time.Millisecond // it is noticed sooner that etcd is away
	one := far.witness(func(one *Witness) { one.pauses.retry = 50 * time.Millisecond })
	defer one.stop()
	process, released := direct.sleeper(), direct.sleeper()
	h := direct.hold("a", process.Process.Pid, direct.identity(process.Process.Pid))
	over := direct.hold("b", released.Process.Pid, direct.identity(released.Process.Pid))
	direct.watches(one, 2)
	proxy.Cut()
	_ = process.Process.Kill()
	_ = released.Process.Kill()
	direct.eventually("a failure", func() bool { return one.Synced() != nil })
	direct.commit(locktxn.Release(direct.layout, over))
	proxy.Heal()
	direct.death(h)
	direct.eventually("the end of the failure", func() bool { return one.Synced() == nil })
	if s := direct.stated(over); s != nil {
		t.Errorf("of a hold that was over it is stated: %+v", *s)
	}
}

func TestProcessInItsOwnNamespaceIsFound(t *testing.T) {
	w := newWorld(t)
	if !w.machine.SeesAll() {
		t.Fatalf("this test has to run in the pid namespace of the machine, not in %d", w.machine.Namespace)
	}
	one := w.witness()
	var pids []int
	var holds []locktxn.Hold
	for _, lock := range []string{"dies", "lives"} {
		c := exec.Command("sh", "-c", "echo $$; exec sleep 600")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := c.StdoutPipe()
		proctest.Must(t, err)
		proctest.Must(t, c.Start())
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "1\n" {
			t.Fatalf("its own id is %q, %v", line, err)
		}
		self := w.identity(c.Process.Pid)
		if self.PIDNamespace == w.machine.Namespace {
			t.Fatal("it has no namespace of its own")
		}
		pids = append(pids, c.Process.Pid)
		holds = append(holds, w.hold(lock, 1, self))
	}
	w.watches(one, 2)
	proctest.Must(t, syscall.Kill(pids[0], syscall.SIGKILL))
	w.death(holds[0])
	w.silent(holds[1])
	one.stop()
	proctest.Must(t, syscall.Kill(pids[1], syscall.SIGKILL))
	w.witness()
	w.death(holds[1])
}

func TestHiddenNamespaceIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	w.machine.Namespace = 1
	one := w.witness()
	c := w.sleeper()
	self := w.identity(c.Process.Pid)
	gone := self
	gone.Start--
	h := w.hold("a", c.Process.Pid, gone)
	const nobody = 1<<22 + 1 // above the largest process id
	other := w.hold("b", nobody, self)
	warning := "cannot see a process of this machine"
	w.eventually("a warning", func() bool { return strings.Contains(one.log.String(), warning) })
	w.shows(one, "w_unseen_processes 2")
	if n := strings.Count(one.log.String(), warning); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
	if w.stated(h) != nil || w.stated(other) != nil {
		t.Error("something is stated")
	}
}

func TestProcessSwitchingLocksIsOpenedOnce(t *testing.T) {
	w := newWorld(t)
	opened := 0
	one := w.witness(func(one *Witness) {
		one.processes.open = func(pid int64) (*handle, error) { opened++; return openProcess(pid) }
	})
	c := w.sleeper()
	for range 20 {
		h := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
		w.watches(one, 1)
		w.commit(locktxn.Release(w.layout, h))
	}
	one.stop()
	if opened != 1 {
		t.Errorf("it was opened %d times", opened)
	}
}

func TestProcessWithoutHoldsIsForgotten(t *testing.T) {
	w := newWorld(t)
	one := w.witness(func(one *Witness) {
		one.pauses.idle = 0
		one.pauses.poll = time.Millisecond
	})
	c, h := w.holder("a")
	w.watches(one, 1)
	w.commit(locktxn.Release(w.layout, h))
	w.watches(one, 0)
	again := w.hold("a", c.Process.Pid, w.identity(c.Process.Pid))
	_ = c.Process.Kill()
	w.death(again)
}
