// Package servers runs the servers that the benchmarks compare. Each is a process with its data in a directory, and
// flushes what it acknowledges unless its name says otherwise.
package servers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// startTimeout is how long a server may take to start: with very many locks, on a busy machine.
const startTimeout = 5 * time.Minute

// Process is a running server.
type Process struct {
	*proctest.Process
	Name string
	Addr string // host:port for its clients
}

// start runs cmd and waits until ready returns nil. The server's output goes to a file beside its data.
func start(ctx context.Context, name, addr, dir string, cmd *exec.Cmd,
	ready func(context.Context) error) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Dir = dir
	cmd.Stdout = log
	cmd.Stderr = log
	running, err := proctest.Launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Process: running, Name: name, Addr: addr}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err = ready(ctx); err == nil {
			return p, nil
		}
		select {
		case <-p.Done():
			output, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("start %s: it ended: %s", name, output)
		case <-ctx.Done():
			p.Stop()
			return nil, fmt.Errorf("start %s: %w", name, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop terminates the server, and soon kills it: its data is no longer needed.
func (p *Process) Stop() {
	_ = p.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-p.Done():
	case <-time.After(5 * time.Second):
		p.Kill()
	}
}

// CPU returns the processor time that the server has used.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := statOf(p.PID(), procfs.Proc.Stat)
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// Memory returns the bytes of memory that the server uses, without mapped files.
func (p *Process) Memory() (int64, error) {
	status, err := statOf(p.PID(), procfs.Proc.NewStatus)
	return int64(status.RssAnon), err
}

// Peak returns the most bytes of memory that the server ever used, with mapped files.
func (p *Process) Peak() (int64, error) {
	status, err := statOf(p.PID(), procfs.Proc.NewStatus)
	return int64(status.VmHWM), err
}

// statOf reads from /proc what the kernel says of a process.
func statOf[T any](pid int, read func(procfs.Proc) (T, error)) (of T, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return of, err
	}
	return read(proc)
}

// need finds a program; the error names its Debian package.
func need(program, debian string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is missing: it is in the Debian package %s", program, debian)
	}
	return path, nil
}

// makeDir creates the directory of a server.
func makeDir(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.MkdirAll(path, 0o755)
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// Program starts one of our programs and returns once the address ready answers 200.
func Program(ctx context.Context, dir, binary, ready string, args ...string) (*Process, error) {
	name := filepath.Base(binary)
	dir, err := makeDir(dir, name)
	if err != nil {
		return nil, err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, err
	}
	return start(ctx, name, "", dir, exec.Command(binary, args...), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, ready, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", name, resp.Status)
		}
		return nil
	})
}
