package robustness

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// child is a process of the run.
type child struct {
	*proctest.Process
	name string
	log  string // file

	began  int64
	killed int64 // stamp: it had not ended before
	paused int64 // stamp; 0 while it runs
	pauses [][2]int64
}

// launch runs a program with its output in a file.
func launch(t testing.TB, name, log string, cmd *exec.Cmd) *child {
	t.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout = file
	cmd.Stderr = file
	began := stamp()
	return &child{Process: proctest.Start(t, cmd), name: name, log: log, began: began}
}

// kill is kill -9. Its stamp is that of the moment before: whoever watches the process may know of its end, and state
// it, before the kill has returned here.
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

// pausedIn reports whether the process was stopped at some time in between.
func (p *child) pausedIn(from, to int64) bool {
	for _, pause := range p.pauses {
		if pause[0] <= to && pause[1] >= from {
			return true
		}
	}
	return false
}
