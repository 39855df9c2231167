package demo

import (
	"os"
	"syscall"
)

// apart makes a program lead a process group of its own, which Ctrl-C does not reach.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// kill ends the program alone: there is no way to end its group.
func kill(p *os.Process) error { return p.Kill() }
