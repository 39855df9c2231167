package etcdtest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/clustermutex/unlocker/internal/etcdembed"
)

// process is a member that runs in a process of its own: this test binary once more, or another etcd.
type process struct {
	cmd  *exec.Cmd
	life io.Closer // closed when this process ends, in whatever way: the member ends with it
	done chan struct{}

	paused bool
	out    bytes.Buffer // read only after done
}

func launch(c etcdembed.Config, program string) (p *process, err error) {
	p = &process{done: make(chan struct{})}
	if program != "" {
		p.cmd = exec.Command(program, flags(c)...)
	} else if p.cmd, err = itself(c); err != nil {
		return nil, err
	}
	p.cmd.Stdout = &p.out
	p.cmd.Stderr = &p.out
	if p.life, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// A child may be bound to the thread that made it, so that thread stays for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		endWithParent(p.cmd)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait()
		}
	}()
	return p, <-started
}

// itself is this test binary as a member.
func itself(c etcdembed.Config) (*exec.Cmd, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Without Main in TestMain it would run the tests again, and those start members: match none.
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), memberVariable+"="+string(config))
	return cmd, nil
}

// flags say to an etcd what a Config says to etcdembed, but for TLS, users and limits.
func flags(c etcdembed.Config) []string {
	client := "http://" + c.Client
	peer := "http://" + c.Peer
	return []string{
		"--name=" + c.Name, "--data-dir=" + c.Dir, "--initial-cluster=" + c.Cluster, "--unsafe-no-fsync",
		"--log-level=error",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
	}
}

// kill works on a paused process too.
func (p *process) kill() {
	p.cmd.Process.Kill() // refused where it ended before, which is as good
	<-p.done
}

// pause returns when the process stands still: a signal that was merely sent leaves it time for an answer.
func (p *process) pause() {
	if p.paused || !p.running() {
		return
	}
	p.paused = true
	p.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		if _, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != syscall.EINTR {
			return
		}
	}
}

func (p *process) resume() {
	p.paused = false
	p.cmd.Process.Signal(syscall.SIGCONT)
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// said is what an ended process printed.
func (p *process) said() string { return strings.TrimSpace(p.out.String()) }
