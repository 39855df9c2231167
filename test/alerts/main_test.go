//go:build alerts

// Package alerts runs the whole chain of an alert on real parts: a lock in a real etcd, the unlockers and the dashboard
// as processes, Prometheus with the shipped rules, Alertmanager with the inhibitions of the example, and a web hook of
// ours at the end. It needs prometheus and alertmanager on this machine, which `make alerts` sees to, and fails without
// them.
package alerts

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdtest"
)

// bin is the directory with our binaries.
var bin string

const top = "../../"

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "unlocker-alerts"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, "./cmd/unlocker", "./cmd/mutexdash")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// tool is the path of a program that has to be installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not installed: run this by make alerts", strings.Join(names, " or "))
	return ""
}

// tells runs a command, which has to end well, and returns what it prints.
func tells(t *testing.T, stdin []byte, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// process is a program that runs beside the test.
type process struct {
	cmd  *exec.Cmd
	out  *lines
	done chan struct{}
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &lines{}, done: make(chan struct{})}
	p.cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
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
			t.Logf("%s:\n%s", filepath.Base(name), p.out.last(30))
		}
	})
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill() // refused where it ended before
	<-p.done
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

func (l *lines) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(strings.TrimSpace(l.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(top + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// patience is how long anything may take before a test fails.
const patience = 40 * time.Second

// eventually waits until try is content.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("never: %s: %v", what, err)
}
