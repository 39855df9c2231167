package robustness

import (
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"github.com/clustermutex/unlocker/internal/cgroup"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// keptByCommand is a lock whose process ended before it was taken, while its command works on: to no witness is that
// the end of its holder.
const keptByCommand = "keeper/command"

// leftBehind is a process that has ended, and its command, which has not.
type leftBehind struct {
	pid     int64
	process metadata.Process
	end     func()
}

// leaveBehind starts both. Where there can be no cgroup, the record names no process, as that of mutexctl.
func leaveBehind() leftBehind {
	self := holderproc.Self(holderproc.System())
	group, err := cgroup.New("robustness")
	if err != nil {
		self.Start = 0
		return leftBehind{process: self, end: func() {}}
	}
	command := exec.Command("sleep", "3600")
	command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Dir().Fd())}
	process := exec.Command("sleep", "3600")
	for _, c := range []*exec.Cmd{command, process} {
		if err := c.Start(); err != nil {
			panic(err)
		}
	}
	system := holderproc.System()
	stat, _ := holderproc.ParseStat(system.Read("/proc/" + strconv.Itoa(process.Process.Pid) + "/stat"))
	self.Start = 0
	self.SupervisorStart = stat.Start
	self.CgroupID = group.ID
	_ = process.Process.Kill()
	_ = process.Wait()
	return leftBehind{pid: int64(process.Process.Pid), process: self, end: sync.OnceFunc(func() {
		_, _ = group.KillAll(nil)
		_ = command.Wait()
		_ = group.Remove()
		group.Close()
	})}
}
