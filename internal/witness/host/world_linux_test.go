package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// envThread makes this program end its main thread and continue in another.
const envThread = "HOSTWITNESS_TEST_THREAD"

func init() { //nolint:gochecknoinits // what locks its thread here stays in the first one; main may have moved
	if os.Getenv(envThread) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(envThread) == "" {
		etcdtest.Main(m)
		return
	}
	go func() { time.Sleep(10 * time.Minute) }()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// world is an etcd with locks, on the machine that the tests run on.
type world struct {
	testing.TB
	etcd    *clientv3.Client
	layout  protocol.Layout
	machine Machine
	pulse   time.Duration                                                             // of watches
	watch   func(context.Context, string, int64, func(int64, []protocol.Event)) error // nil: that of the store
}

// newWorld is one for a parallel test.
func newWorld(t *testing.T) *world {
	t.Parallel()
	return on(t, etcdtest.Start(t).Client(t))
}

func on(t testing.TB, etcd *clientv3.Client) *world {
	t.Helper()
	layout := protocol.DefaultLayout()
	m, err := ReadMachine()
	proctest.Must(t, err)
	return &world{TB: t, etcd: etcd, layout: layout, machine: m, pulse: lockstore.ProgressInterval}
}

// witness starts a witness that runs until the test ends or stop is called.
type witness struct {
	*Witness
	log  *proctest.Log
	stop func()
}

func (w *world) witness(change ...func(*Witness)) witness {
	w.Helper()
	store := lockstore.New(w.etcd, w.layout, lockstore.WithProgressInterval(w.pulse))
	log := &proctest.Log{}
	source := lockview.Source{List: store.ListKeys, Watch: store.Watch}
	if w.watch != nil {
		source.Watch = w.watch
	}
	view := lockview.New(w.layout, source, lockview.Options{Keep: w.machine.MayHold, Explain: etcdconn.Explain})
	one := New(Config{
		ID: "w1", Machine: w.machine, Locks: view.Locks, Changed: view.Changed, RecordProof: store.RecordProof,
		RecordSuspicion: store.RecordSuspicion,
		Freshness:       func() (int64, string) { f := view.Fresh(); return f.FirstRevision, f.Cause },
		CheckWritable:   func(ctx context.Context) error { return store.CheckWitnessRights(ctx, uuid.NewString()) },
		Explain:         etcdconn.Explain, Log: zerolog.New(log),
	})
	for _, c := range change {
		c(one)
	}
	reads, looks := proctest.Go(w, view.Run), proctest.Go(w, one.Run)
	return witness{one, log, func() { reads.Stop(w); looks.Stop(w) }}
}

// child is a process that runs until it is killed.
func (w *world) child(name string, args ...string) *exec.Cmd {
	w.Helper()
	c, _ := w.start(name, args...)
	return c
}

// start starts a process and returns it with its standard input.
func (w *world) start(name string, args ...string) (*exec.Cmd, io.Closer) {
	w.Helper()
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	proctest.Must(w, errors.Join(err, c.Start()))
	w.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c, in
}

func (w *world) sleeper() *exec.Cmd { return w.child("sleep", "600") }

// holder is an idle process that holds a lock.
func (w *world) holder(lock string) (*exec.Cmd, locktxn.Hold) {
	w.Helper()
	c := w.sleeper()
	return c, w.hold(lock, c.Process.Pid, w.identity(c.Process.Pid))
}

// identity returns what the process with this id would write about itself.
func (w *world) identity(pid int) metadata.Process {
	w.Helper()
	base := fmt.Sprintf("/proc/%d/", pid)
	text, err := os.ReadFile(base + "stat")
	proctest.Must(w, err)
	link, err := os.Readlink(base + "ns/pid")
	proctest.Must(w, err)
	stat, _ := holderproc.ParseStat(string(text))
	inode, _ := holderproc.ParseNamespace(link)
	return metadata.Process{BootID: w.machine.BootID, Start: stat.Start, PIDNamespace: inode}
}

// hold takes the lock for a process.
func (w *world) hold(lock string, pid int, p metadata.Process, change ...func(*lockrecord.Draft)) locktxn.Hold {
	w.Helper()
	now := time.Now()
	d := lockrecord.Draft{UUID: uuid.NewString(),
		Identity: metadata.Identity{Owner: "billing", Hostname: w.machine.Hostname, PID: int64(pid)},
		LockedAt: now, AlertAt: now.Add(time.Hour), AutoUnlockAt: now.Add(2 * time.Hour), Process: p}
	for _, c := range change {
		c(&d)
	}
	fields, err := d.Fields()
	proctest.Must(w, err)
	take := locktxn.Acquire(w.layout, locktxn.PlainClaim(lock), d.UUID, fields, false)
	resp, err := take.Commit(context.Background(), w.etcd)
	if err != nil || !resp.Succeeded {
		w.Fatalf("take %s: %v, %v", lock, resp, err)
	}
	return locktxn.Hold{Lock: lock, UUID: d.UUID, Token: resp.Header.Revision}
}

func (w *world) commit(t locktxn.Txn) {
	w.Helper()
	if resp, err := t.Commit(context.Background(), w.etcd); err != nil || !resp.Succeeded {
		w.Fatalf("%v, %v", resp, err)
	}
}

// stated returns the statement about a hold, nil if there is none.
func (w *world) stated(h locktxn.Hold) *metadata.Statement {
	w.Helper()
	resp, err := w.etcd.Get(context.Background(), w.layout.Death(h.UUID))
	proctest.Must(w, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	kv := resp.Kvs[0]
	s, err := protocol.Unmarshal[metadata.Statement](kv.Value)
	if err != nil || s.UUID != h.UUID || s.Token != h.Token || s.Name != h.Lock || s.Witness != "host" ||
		s.By != "w1" || s.At.IsZero() || kv.Lease == 0 {
		w.Fatalf("of %+v it is stated: %s", h, kv.Value)
	}
	return &s
}

// death waits for the statement about a hold.
func (w *world) death(h locktxn.Hold) *metadata.Statement {
	w.Helper()
	var s *metadata.Statement
	w.eventually("a statement about "+h.Lock, func() bool { s = w.stated(h); return s != nil })
	return s
}

// silent expects no statement about a hold until the witness has stated two later deaths, because concurrent statements
// may overtake each other. The later processes are not reaped: the witness waits a moment for that, and a statement
// about a reaped process would overtake the others.
func (w *world) silent(holds ...locktxn.Hold) {
	w.Helper()
	for range 2 {
		c, later := w.holder("later/" + uuid.NewString())
		_ = c.Process.Kill()
		w.death(later)
	}
	for _, h := range holds {
		if s := w.stated(h); s != nil {
			w.Errorf("of %s it is stated: %+v", h.Lock, *s)
		}
	}
}

// shows waits until the metrics of a witness have this line.
func (w *world) shows(one witness, line string) {
	w.Helper()
	name, _, _ := strings.Cut(line, " ")
	name, _, _ = strings.Cut(name, "{")
	w.eventually(line, func() bool {
		text, err := testutil.CollectAndFormat(one.Collector("w"), expfmt.TypeTextPlain, name)
		return err == nil && strings.Contains(string(text), line+"\n")
	})
}

func (w *world) eventually(what string, f func() bool) {
	w.Helper()
	etcdtest.Eventually(w, what, f)
}

// watches waits until the witness watches this many processes.
func (w *world) watches(one witness, n int) {
	w.Helper()
	w.eventually(fmt.Sprintf("a watch of %d processes", n), func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		watched := 0
		for _, p := range one.running {
			if len(p.watchers) > 0 {
				watched++
			}
		}
		return watched == n
	})
}

func noHandles(one *Witness) {
	one.processes.open = func(int64) (*handle, error) { return nil, errNoHandle }
	one.pauses.poll = 10 * time.Millisecond
}

// bothWays runs a test with process handles, and as on a kernel without them.
func bothWays(t *testing.T, test func(t *testing.T, w *world, change ...func(*Witness))) {
	t.Run("with handles", func(t *testing.T) { test(t, newWorld(t)) })
	t.Run("without", func(t *testing.T) { test(t, newWorld(t), noHandles) })
}

func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in %s", part, text)
		}
	}
}
