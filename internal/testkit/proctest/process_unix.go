//go:build unix

package proctest

import (
	"fmt"
	"os"
	"syscall"
)

// Pause suspends the process. It returns once the process has stopped, because a signal takes effect only later. It
// returns an error if the process has ended.
func (p *Process) Pause() error {
	if p.paused {
		return nil
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	p.paused = true
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.PID(), &status, syscall.WUNTRACED, nil)
		if err == nil && !status.Stopped() {
			err = fmt.Errorf("%v ended", p)
		}
		if err != syscall.EINTR {
			return err
		}
	}
}

// Resume continues a paused process.
func (p *Process) Resume() {
	p.paused = false
	p.Signal(syscall.SIGCONT)
}

// exclusive waits until no other process has the file, until it is closed.
func exclusive(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
