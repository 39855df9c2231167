package host

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/cgroup"
)

// findCgroups looks for cgroups in the tree of the machine.
func findCgroups(ids map[int64]bool) (living map[int64]int, private []string, err error) {
	return cgroup.Find(ids)
}

// openCgroup opens the cgroup with this id of the command of a living process.
func openCgroup(pid, id int64) (openedCgroup, error) { return cgroup.OpenOf(pid, id) }

// handle refers to one process, even if its id is reused later.
type handle struct {
	file *os.File
	raw  syscall.RawConn
}

// openProcess returns a handle of the process that has this id now. The error satisfies [isGone] if there is no such
// process, and [isNoHandle] if there may be one, but no handle.
func openProcess(pid int64) (*handle, error) {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller accepts it: a wait costs no thread
		unix.Close(fd)
		return nil, err
	}
	h := &handle{file: os.NewFile(uintptr(fd), "pidfd")}
	if h.raw, err = h.file.SyscallConn(); err != nil {
		h.file.Close()
		return nil, err
	}
	return h, nil
}

// isGone reports whether the error means that there is no such process.
func isGone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) }

// exists reports whether a process has this id now.
func exists(pid int64) bool { return !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }

func (h *handle) ended() bool {
	var over bool
	err := h.raw.Control(func(fd uintptr) { over = processEnded(fd) })
	return err == nil && over
}

// wait returns nil when the process has ended, and an error when the handle was closed before.
func (h *handle) wait() error { return h.raw.Read(processEnded) }

func (h *handle) close() { h.file.Close() }

// processEnded reports whether the process behind the descriptor has ended, with all of its threads.
func processEnded(fd uintptr) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
		}
	}
}

// The kernel knows the exit code once the process is reaped, which its parent usually does at once.
const (
	reapTries = 5
	reapPause = 5 * time.Millisecond
)

// exit returns how the process ended, as a wait status, if the kernel reports it: from Linux 6.15 on.
func (h *handle) exit() (status int64, known bool) {
	for range reapTries {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		var err error
		controlled := h.raw.Control(func(fd uintptr) { err = unix.IoctlPidfdInfo(int(fd), &info) })
		switch {
		case errors.Join(controlled, err) != nil:
			return 0, false
		case info.Mask&unix.PIDFD_INFO_EXIT != 0:
			return int64(info.Exit_code), true
		}
		time.Sleep(reapPause)
	}
	return 0, false
}

// outcome returns the signal that ended a process with this wait status, or else its exit code.
func outcome(status int64) (signal string, code int) {
	s := syscall.WaitStatus(status)
	if s.Signaled() {
		return unix.SignalName(s.Signal()), 0
	}
	return "", s.ExitStatus()
}
