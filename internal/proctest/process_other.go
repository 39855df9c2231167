//go:build !linux

package proctest

import "os/exec"

// killWithParent does nothing: only Linux can. A test that is killed leaves paused programs behind, and those that do
// not read their standard input.
func killWithParent(*exec.Cmd) {}
