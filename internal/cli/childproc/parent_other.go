//go:build unix && !linux

package childproc

import "syscall"

// dieWithParent does nothing: only Linux supports it.
func dieWithParent(*syscall.SysProcAttr) {}
