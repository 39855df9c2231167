package robustness

import (
	"os/exec"
	"syscall"
)

// endWithParent has a program of the run end with the test, also where that is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
