// Package servers runs the servers that the benchmarks compare. Each is a process with its data in a directory, and
// flushes what it acknowledges unless its name says otherwise.
package servers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// startTimeout is how long a server may take to start: with a million locks, on a busy machine.
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
func (p *Process) CPU() (time.Duration, error) { return cpuOf(p.PID()) }

// Memory returns the bytes of memory that the server uses, without mapped files.
func (p *Process) Memory() (int64, error) { return memoryOf(p.PID(), "RssAnon") }

// Peak returns the most bytes of memory that the server ever used, with mapped files.
func (p *Process) Peak() (int64, error) { return memoryOf(p.PID(), "VmHWM") }

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

// ticks are the units of a process's times in /proc.
const ticks = 100

// cpuOf reads user and system time of a process from /proc.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := afterCommand(string(stat))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	if userErr != nil || systemErr != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}
