package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test fails. Nothing here asserts a tight time: two busy cores are
// slow.
const patience = 40 * time.Second

// process is one of our binaries.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *lines // stdout and stderr
	done chan struct{}
}

// start runs a binary until the test ends. Its environment is empty but for extra, so that nobody's settings get in.
func start(t *testing.T, extra []string, name string, args ...string) *process {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, out: &lines{}, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(bin, name), args...)
	p.cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, extra...)
	p.cmd.Stdout = p.out
	p.cmd.Stderr = p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), p.out.last(60))
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	p.cmd.Process.Kill() // refused where it ended before
	<-p.done
}

// terminate asks the process to end and returns its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait(t)
}

// wait returns the exit code of a process that ends by itself.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s still runs after %v", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// lines collects what a process prints.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// last are the last n lines, none of them long.
func (l *lines) last(n int) string {
	all := strings.Split(strings.TrimSpace(l.String()), "\n")
	all = all[max(0, len(all)-n):]
	for i, line := range all {
		all[i] = line[:min(len(line), 300)]
	}
	return strings.Join(all, "\n")
}

// objects are the log lines, one JSON object each. Whatever is written to the log, hostile text included, has to be
// one.
func (l *lines) objects(t *testing.T) (all []map[string]any) {
	t.Helper()
	text := l.String()
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("not a JSON object: %q", line)
		}
		all = append(all, object)
	}
	return all
}

// freeAddr is an address on which nobody listens, below the ports that systems give to outgoing connections.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually calls f until it returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// outcome is what a command left behind.
type outcome struct {
	code        int
	out, errors string
}

// command runs a binary to its end.
func command(t *testing.T, name string, args ...string) outcome {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Stdout = &out
	cmd.Stderr = &errs
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}
