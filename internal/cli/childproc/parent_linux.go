package childproc

import "syscall"

// dieWithParent has the kernel kill the command when mutexctl is killed in a way that it cannot handle. Nobody would
// extend the lock then, and nobody would end the command when the lock goes.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
