package proctest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs beside the test.
type Process struct {
	cmd    *exec.Cmd
	done   chan struct{}
	output Log
	read   int // bytes of output that NextLine returned
	paused bool
}

// Start is Launch for a test. It kills the process at the end of the test, and logs its output if the test failed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Launch(cmd)
	Must(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() && p.Output() != "" {
			t.Logf("%s:\n%s", strings.Join(cmd.Args, " "), p.output.last(60))
		}
	})
	return p
}

// Launch starts a command that does not outlive this process: its standard input is a pipe from here (unless cmd sets
// it), and on Linux the kernel kills it. Its output is collected unless cmd sets Stdout and Stderr.
func Launch(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.output
	}
	if cmd.Stdin == nil {
		if _, err := cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	cmd.WaitDelay = 10 * time.Second // for its children, which may keep its output open
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel kills the child when the thread that started it ends, so the thread lives as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		killWithParent(cmd)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	return p, <-started
}

// String returns the name of the program.
func (p *Process) String() string { return filepath.Base(p.cmd.Path) }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal. It returns an error if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process, paused or not, and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL) // fails if it has ended, which is fine
	<-p.done
}

// Terminate sends SIGTERM and returns the exit code.
func (p *Process) Terminate(t testing.TB) int {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait(t)
}

// Wait waits until the process ends and returns its exit code; -1 if a signal ended it.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(Timeout):
		t.Fatalf("%v is still running after %v", p, Timeout)
	}
	return p.State().ExitCode()
}

// State returns how the process ended; nil while it is running.
func (p *Process) State() *os.ProcessState {
	if p.Running() {
		return nil
	}
	return p.cmd.ProcessState
}

// Output returns what the process has printed.
func (p *Process) Output() string { return p.output.String() }

// Prints waits until the process has printed the text.
func (p *Process) Prints(t testing.TB, text string) {
	t.Helper()
	Eventually(t, "the output", func() error {
		if !strings.Contains(p.Output(), text) {
			return fmt.Errorf("no %q in\n%s", text, p.Output())
		}
		return nil
	})
}

// NextLine waits for the next line of output and returns it without the line feed.
func (p *Process) NextLine(t testing.TB) (line string) {
	t.Helper()
	Eventually(t, "another line of output", func() error {
		ended := !p.Running()
		text, _, whole := strings.Cut(p.Output()[p.read:], "\n")
		if !whole && ended {
			t.Fatalf("it ended and printed nothing more but %q", text)
		}
		if !whole {
			return errors.New("there is none")
		}
		line = text
		p.read += len(text) + 1
		return nil
	})
	return line
}

// Log is written and read concurrently.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// last returns the last n lines, each shortened.
func (l *Log) last(n int) string {
	all := strings.Split(strings.TrimSpace(l.String()), "\n")
	all = all[max(0, len(all)-n):]
	for i, line := range all {
		all[i] = line[:min(len(line), 300)]
	}
	return strings.Join(all, "\n")
}

// Result is the outcome of a command.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command with empty standard input until it ends.
func Run(t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr Log
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	cmd.Stdin = strings.NewReader("")
	code := Start(t, cmd).Wait(t)
	return Result{code, stdout.String(), stderr.String()}
}
