package robustness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// onFlush has strace do something to a process whenever that flushes a file to its disk, until the child that is
// returned ends.
func onFlush(t testing.TB, pid int, what string) *child {
	t.Helper()
	const calls = "fdatasync,fsync"
	log := filepath.Join(t.TempDir(), "strace.log")
	p := launch(t, "strace", log, proctest.Command(t, "strace", "-f", "-qqq", "-o", os.DevNull,
		"-p", strconv.Itoa(pid), "-e", "trace="+calls, "-e", "inject="+calls+":"+what))
	for !traced(pid) {
		if !p.Running() {
			said, _ := os.ReadFile(log)
			t.Fatalf("strace: %s", said)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return p
}

// traced reports whether all threads of a process have somebody who traces them.
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

// hang lets the disk of a member hang: what is flushed to it takes a minute, or until repair is called.
func hang(t testing.TB, m *etcdtest.Members, i int) (repair func()) {
	t.Helper()
	p := onFlush(t, m.PID(i), "delay_enter="+strconv.FormatInt(time.Minute.Microseconds(), 10))
	return func() { p.terminate(20 * time.Second) }
}

// hangDisk is hang as a fault of a run.
func (s *stage) hangDisk() (func(), bool) {
	i, free := s.spare()
	if !free {
		return nil, false
	}
	repair := hang(s.t, s.members, i)
	s.down[i] = true
	return func() {
		repair()
		s.down[i] = false
	}, true
}
