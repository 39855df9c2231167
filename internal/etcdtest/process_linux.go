package etcdtest

import (
	"os/exec"
	"syscall"
)

// endWithParent lets a paused member end with the test too: it reads no pipe.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
