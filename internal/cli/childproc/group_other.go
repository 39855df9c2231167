//go:build !linux

package childproc

import (
	"errors"
	"os/exec"
)

// Group is a cgroup for a command. Only Linux has cgroups.
type Group struct{}

// NewGroup fails.
func NewGroup(string) (*Group, error) { return nil, errors.New("this system has no cgroups") }

// GuardArgument is the only argument of the guard, which is never started.
const GuardArgument = "guard-of-run"

// Guard does nothing.
func Guard() int { return unknownStatus }

// ID returns 0.
func (*Group) ID() int64 { return 0 }

// Contain does nothing.
func (*Group) Contain(*exec.Cmd) {}

// Close does nothing.
func (*Group) Close() {}

// KillAll does nothing.
func (*Group) KillAll(<-chan struct{}) (int, error) { return 0, nil }
