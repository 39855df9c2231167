package childproc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Child is a running command. It leads a process group of its own, which Ctrl-Break reaches. It is in a job object with
// all that it starts, which can be ended as a whole and ends with mutexctl.
type Child struct {
	cmd *exec.Cmd
	job windows.Handle
	exitState
}

// Start starts the command. The other parameters are for systems with cgroups and suspended commands. The error is a
// [*StartError].
func Start(cmd *exec.Cmd, _ *Group, _ func() bool) (*Child, error) {
	job, err := newJob()
	if err != nil {
		return nil, newStartError(cmd.Path, err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		_ = windows.CloseHandle(job)
		return nil, newStartError(cmd.Path, err)
	}
	c := &Child{cmd: cmd, job: job, exitState: exitState{done: make(chan struct{})}}
	if err := c.join(); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(job)
		return nil, newStartError(cmd.Path, err)
	}
	go func() {
		err := cmd.Wait()
		c.code = unknownStatus
		if state := cmd.ProcessState; err == nil || state != nil {
			c.code = state.ExitCode()
		}
		close(c.done)
	}()
	return c, nil
}

// newJob makes a job object whose processes end when its last handle is closed, by us or by our death.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err == nil {
		err = limit(job, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)
	}
	if err != nil && job != 0 {
		_ = windows.CloseHandle(job)
	}
	return job, err
}

func limit(job windows.Handle, flags uint32) error {
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: flags},
	}
	_, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// join puts the command into the job. What it started in the moments before is not in it.
func (c *Child) join() error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false,
		uint32(c.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(c.job, process)
}

// Linger does nothing: what a command leaves in the background goes on.
func (c *Child) Linger(time.Duration) {}

// AfterRelease lets processes that the command left in the background outlive mutexctl.
func (c *Child) AfterRelease() {
	if c != nil {
		_ = limit(c.job, 0) // if it fails, they end with mutexctl
	}
}

// Signal sends Ctrl-Break to the group, whatever the signal: it is all that can be sent.
func (c *Child) Signal(os.Signal) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.cmd.Process.Pid)) // fails without a console
}

// End ends the command with Ctrl-Break and, after the grace period, ends all of the job at once. The grace period is
// for the command alone: what it leaves behind when it ends gets none.
func (c *Child) End(sig os.Signal, grace time.Duration) {
	c.Signal(sig)
	select {
	case <-c.done:
	case <-time.After(grace):
	}
	_ = windows.TerminateJobObject(c.job, killedStatus)
	<-c.done
}

// killedStatus is the status of a command that was ended as on Unix by KILL.
const killedStatus = SignalStatus + 9
