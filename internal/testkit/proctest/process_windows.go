package proctest

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Pause fails: nothing suspends a process here.
func (p *Process) Pause() error { return errors.New("nothing suspends a process on Windows") }

// Resume does nothing.
func (p *Process) Resume() {}

// exclusive waits until no other process has the file, until it is closed.
func exclusive(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &windows.Overlapped{})
}
