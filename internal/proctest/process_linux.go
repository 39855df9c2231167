package proctest

import (
	"os/exec"
	"syscall"
)

// killWithParent also ends a paused program with the test: that one reads no pipe.
func killWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
