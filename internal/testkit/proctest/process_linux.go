package proctest

import (
	"os/exec"
	"syscall"
)

// killWithParent also ends paused programs with the test, which cannot notice that their input was closed.
func killWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
