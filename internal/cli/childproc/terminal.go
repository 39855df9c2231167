//go:build unix

package childproc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, with mutexctl in its foreground. Only the foreground group may read from it and
// gets the signals of its keys, so it is lent to the command's group. A nil terminal does nothing.
type terminal struct {
	file *os.File
	own  int // the process group of mutexctl
}

// openTerminal opens the controlling terminal. It returns nil if there is none, or another group is in its foreground.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, own: unix.Getpgrp()}
	if !t.inForeground() {
		file.Close()
		return nil
	}
	return t
}

func (t *terminal) inForeground() bool {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// lendTo puts the command that is about to start into the foreground.
func (t *terminal) lendTo(attr *syscall.SysProcAttr) {
	if t != nil {
		attr.Foreground = true
		attr.Ctty = int(t.file.Fd())
	}
}

// setForeground puts a process group into the foreground. SIGTTOU must be ignored: it would stop a background process
// that does this.
func (t *terminal) setForeground(group int) {
	if t == nil {
		return
	}
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // fails only when the terminal is gone
}

// takeBack puts mutexctl back into the foreground.
func (t *terminal) takeBack() {
	if t != nil {
		t.setForeground(t.own)
	}
}
