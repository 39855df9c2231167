//go:build unix

package demo

import (
	"os"
	"syscall"
)

// apart makes a program lead a process group of its own.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// kill ends that group.
func kill(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
