package robustness

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// child is a process of the run.
type child struct {
	name string
	log  string // file
	cmd  *exec.Cmd
	life io.Closer
	done chan struct{}

	began  int64
	killed int64 // stamp
	paused int64 // stamp; 0 while it runs
	pauses [][2]int64
}

// launch runs a program with its output in a file.
func launch(t testing.TB, name, log string, env []string, program string, args ...string) *child {
	t.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := &child{name: name, log: log, cmd: exec.Command(program, args...), done: make(chan struct{}), began: stamp()}
	p.cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	p.cmd.Stdout = file
	p.cmd.Stderr = file
	endWithParent(p.cmd)
	if p.life, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // a child is bound to the thread that made it, see endWithParent
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *child) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill is kill -9.
func (p *child) kill() {
	if p.running() {
		p.cmd.Process.Kill()
		<-p.done
		p.killed = stamp()
	}
}

// terminate asks the process to end and tells whether it did so in order and in time.
func (p *child) terminate(patience time.Duration) bool {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.cmd.ProcessState.Success()
	case <-time.After(patience):
		return false
	}
}

func (p *child) pause() {
	if p.paused == 0 {
		p.paused = stamp()
		p.cmd.Process.Signal(syscall.SIGSTOP)
	}
}

func (p *child) resume() {
	if p.paused != 0 {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.pauses = append(p.pauses, [2]int64{p.paused, stamp()})
		p.paused = 0
	}
}

// pausedIn tells whether the process stood still at some time in between.
func (p *child) pausedIn(from, to int64) bool {
	for _, pause := range p.pauses {
		if pause[0] <= to && pause[1] >= from {
			return true
		}
	}
	return false
}
