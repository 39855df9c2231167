package childproc

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/cgroup"
)

// Group is a cgroup for a command, and for all that it starts, which ends with mutexctl: a second process of mutexctl
// kills what lives in it when the first has ended, however. A nil Group is none.
type Group struct {
	cgroup *cgroup.Group
	guard  *os.File // a pipe whose other end the second process reads: it is closed when the first ends
}

// NewGroup makes a group for the command under a lock. It fails if the command could not start in it.
func NewGroup(lock string) (*Group, error) {
	made, err := cgroup.Make(lock)
	if err != nil {
		return nil, err
	}
	g := &Group{cgroup: made}
	if err := g.startGuard(); err != nil {
		g.Close()
		return nil, fmt.Errorf("no process starts in a cgroup of its own: %w", err)
	}
	return g, nil
}

// startGuard starts the second process as the command will be started, which proves that the system allows that, and
// takes it out of the group.
func (g *Group) startGuard() error {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	g.guard = theirs
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"mutexctl", GuardArgument}, Dir: "/", Stdin: ours,
		ExtraFiles:  []*os.File{g.cgroup.Dir()},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // out of reach of the terminal and of signals to our group
	}
	g.Contain(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := g.cgroup.Evict(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	return nil
}

// GuardArgument is the only argument of the second process.
const GuardArgument = "guard-of-run"

// guardFD is where the second process finds the group.
const guardFD = 3

// Guard is the second process: it waits until the first has ended, and then kills what lives in the group. Where the
// first did all that itself, there is nothing left to do.
func Guard() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	dir := os.NewFile(guardFD, "cgroup")
	if dir == nil {
		return unknownStatus
	}
	for buffer := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(buffer); err != nil {
			break
		}
	}
	group := cgroup.Of(dir)
	_ = group.Evict(os.Getpid()) // done already, or the first was killed before it could, and we would kill ourselves
	if err := group.Kill(); err != nil {
		return unknownStatus
	}
	if _, err := group.Clear(nil); err != nil {
		return unknownStatus
	}
	_ = group.Remove() // done already, or the first never came to use it
	return 0
}

// ID returns the id of the cgroup; 0 if there is none.
func (g *Group) ID() int64 {
	if g == nil {
		return 0
	}
	return g.cgroup.ID
}

// Contain makes the command start in the group.
func (g *Group) Contain(cmd *exec.Cmd) {
	if g == nil {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(g.cgroup.Dir().Fd())
}

// clear kills what lives in the group, and returns how many processes that were. It blocks until they are gone or done
// is closed.
func (g *Group) clear(done <-chan struct{}) (killed int, err error) {
	if g == nil {
		return 0, nil
	}
	return g.cgroup.Clear(done)
}

// Close removes the group, if nobody lives in it.
func (g *Group) Close() {
	if g == nil {
		return
	}
	_ = g.cgroup.Remove() // otherwise the second process does so, once it can
	g.cgroup.Close()
	if g.guard != nil {
		g.guard.Close()
	}
}
