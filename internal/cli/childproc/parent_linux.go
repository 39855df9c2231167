package childproc

import "syscall"

// dieWithParent makes the kernel kill the command if mutexctl is killed, because then nothing would extend the lock, or
// end the command when the lock is lost.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
