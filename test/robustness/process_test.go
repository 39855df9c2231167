package robustness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

type child struct {
	*proctest.Process
	name  string
	log   string // file
	addr  string // of one of our programs
	notes string // file of a client

	began  int64
	killed int64 // stamp: it had not ended before
	paused int64 // stamp; 0 while it runs
	pauses [][2]int64
}

func launch(t testing.TB, name, dir string, cmd *exec.Cmd) *child {
	log := filepath.Join(dir, name+".log")
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	proctest.Must(t, err)
	defer file.Close()
	cmd.Stdout = file
	cmd.Stderr = file
	began := stamp()
	return &child{Process: proctest.Start(t, cmd), name: name, log: log, began: began}
}

// kill is kill -9. It records the time before the kill, because a witness may state the death before the kill returns.
func (p *child) kill() {
	if p.Running() {
		before := stamp()
		p.Kill()
		p.killed = before
	}
}

// terminate asks the process to end and reports whether it did so cleanly and in time.
func (p *child) terminate(timeout time.Duration) bool {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done():
		return p.State().Success()
	case <-time.After(timeout):
		return false
	}
}

func (p *child) pause() {
	if p.paused == 0 {
		p.paused = stamp()
		p.Pause()
	}
}

func (p *child) resume() {
	if p.paused != 0 {
		p.Resume()
		p.pauses = append(p.pauses, [2]int64{p.paused, stamp()})
		p.paused = 0
	}
}

const clockVariable = "ROBUSTNESS_CLOCK"

// shifts are the places where the unlocker reads the wall clock to judge a lock or to compare clocks. In one of a run's
// two unlockers they read an adjustable clock; everything else is the shipped program.
var shifts = []struct{ dir, file, old, new string }{
	{"pkg/sweeper", "config.go", "c.Now().Round(0)", "shifted(c.Now())"},
	{"internal/etcdconn", "etcdconn.go", "asked.Add(took / 2)", "shifted(asked.Add(took / 2))"},
}

const shifted = `package %s

import (
	"os"
	"time"
)

func shifted(t time.Time) time.Time {
	text, _ := os.ReadFile(os.Getenv(%q))
	by, _ := time.ParseDuration(string(text))
	return t.Round(0).Add(by)
}
`

func buildShifted(p *proctest.Programs) error {
	sources := map[string]string{}
	for _, s := range shifts {
		file := filepath.Join(p.Root, s.dir, s.file)
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Count(string(source), s.old) != 1 {
			return fmt.Errorf("%s/%s reads the clock in another way than in one %q", s.dir, s.file, s.old)
		}
		sources[file] = strings.Replace(string(source), s.old, s.new, 1)
		sources[filepath.Join(p.Root, s.dir, "shifted.go")] = fmt.Sprintf(shifted, filepath.Base(s.dir), clockVariable)
	}
	overlay, err := proctest.Overlay(p.Dir, sources)
	if err != nil {
		return err
	}
	return p.Go("build", "-overlay", overlay, "-o", filepath.Join(p.Dir, "unlocker-shifted"), "./cmd/unlocker")
}

func (s *stage) clockFile() string { return filepath.Join(s.dir, "clock") }

func (s *stage) setClock(by time.Duration) {
	next := s.clockFile() + ".next"
	proctest.Must(s.t, os.WriteFile(next, []byte(by.String()), 0o600))
	proctest.Must(s.t, os.Rename(next, s.clockFile()))
}

// jumpClock sets the clock of one unlocker forward or back, by seconds or by an hour, whether or not it is running.
func (s *stage) jumpClock() (func(), bool) {
	by := []time.Duration{10 * time.Second, time.Minute, time.Hour}[s.rand.IntN(3)]
	by += time.Duration(s.rand.Int64N(int64(by)))
	if s.rand.IntN(2) == 0 {
		by = -by
	}
	s.setClock(by)
	return func() { s.setClock(0) }, true
}

// onFlush makes strace tamper with a process whenever it flushes a file to disk, until the returned child ends.
func onFlush(t testing.TB, pid int, what string) *child {
	const calls = "fdatasync,fsync"
	p := launch(t, "strace", t.TempDir(), proctest.Command(t, "strace", "-f", "-qqq", "-o", os.DevNull,
		"-p", strconv.Itoa(pid), "-e", "trace="+calls, "-e", "inject="+calls+":"+what))
	for !traced(pid) {
		if !p.Running() {
			said, _ := os.ReadFile(p.log)
			t.Fatalf("strace: %s", said)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return p
}

// traced reports whether all threads of a process are traced.
func traced(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, file := range threads {
		status, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
			return false
		}
	}
	return true
}

// hang makes a member's disk hang: a flush takes a minute, or until repair is called.
func hang(t testing.TB, m *etcdtest.Members, i int) (repair func()) {
	p := onFlush(t, m.PID(i), "delay_enter="+strconv.FormatInt(time.Minute.Microseconds(), 10))
	return func() { p.terminate(20 * time.Second) }
}

func (s *stage) hangDisk() (func(), bool) {
	i := s.rand.IntN(s.Nodes)
	repair := hang(s.t, s.members, i)
	s.down[i] = true
	return func() {
		repair()
		s.down[i] = false
	}, true
}
