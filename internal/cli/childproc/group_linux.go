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

// Group is a cgroup for a command and all processes that it starts. None outlives mutexctl, even if that is killed: a
// second process of mutexctl, the guard, then kills them. A nil Group does nothing.
type Group struct {
	cgroup    *cgroup.Group
	guard     *exec.Cmd
	guardPipe *os.File // the guard reads its other end, and sees end of file when this process ends
}

// NewGroup creates a group for the command under a lock, and its guard. It fails if the command could not start in it.
func NewGroup(lock string) (*Group, error) {
	made, err := cgroup.New(lock)
	if err != nil {
		return nil, err
	}
	g := &Group{cgroup: made}
	if err := g.startGuard(); err != nil {
		g.Close()
		return nil, fmt.Errorf("cannot start a process in a cgroup of its own: %w", err)
	}
	return g, nil
}

// startGuard starts the guard in the group, which proves that the system allows that for the command, too, and moves it
// out of the group.
func (g *Group) startGuard() error {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	g.guardPipe = theirs
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
	g.guard = cmd
	return nil
}

// GuardArgument is the only argument of the guard.
const GuardArgument = "guard-of-run"

// guardFD is the file descriptor of the group's directory in the guard.
const guardFD = 3

// Guard is the main function of the guard. It waits until the process that started it has ended, and then kills all
// processes in the group. Usually that process has left nothing to do.
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
	group := cgroup.FromDir(dir)
	_ = group.Evict(os.Getpid()) // already done, unless mutexctl was killed before: then Kill would kill this process
	if err := group.Kill(); err != nil {
		return unknownStatus
	}
	if _, err := group.KillAll(nil); err != nil {
		return unknownStatus
	}
	_ = group.Remove() // already done, unless mutexctl was killed
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

// KillAll kills all processes in the group, and returns how many there were. It blocks until they have ended, or done
// is closed.
func (g *Group) KillAll(done <-chan struct{}) (killed int, err error) {
	if g == nil {
		return 0, nil
	}
	return g.cgroup.KillAll(done)
}

// Close removes the group if it has no processes, and ends the guard: it may be in the group of an outer run, which
// would kill it as left behind. Otherwise the guard removes the group, once it can.
func (g *Group) Close() {
	if g == nil {
		return
	}
	if err := g.cgroup.Remove(); err == nil && g.guard != nil {
		_ = g.guard.Process.Kill()
		_ = g.guard.Wait()
	}
	g.cgroup.Close()
	if g.guardPipe != nil {
		g.guardPipe.Close()
	}
}
