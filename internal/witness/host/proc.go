package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/witness/holderproc"
)

// proc is a /proc file system that was mounted for the pid namespace of this process.
type proc struct{ root string }

func (p proc) path(parts ...string) string {
	return filepath.Join(append([]string{p.root}, parts...)...)
}

// stat reads the state of the process. If the file cannot be read, the error wraps that of the system.
func (p proc) stat(pid int64) (holderproc.Stat, error) {
	text, err := os.ReadFile(p.path(strconv.FormatInt(pid, 10), "stat"))
	if err != nil {
		return holderproc.Stat{}, err
	}
	s, ok := holderproc.ParseStat(string(text))
	if !ok {
		return holderproc.Stat{}, fmt.Errorf("process %d: cannot parse its stat file", pid)
	}
	return s, nil
}

// isHolder reports whether the process with this id may be the process of h: in its innermost pid namespace it has the
// id of h, and that namespace is not known to differ from that of h. certain is false if the namespace is unreadable,
// which it is for a reader that may not trace the process. An error means that the process exists, but cannot be
// identified.
func (p proc) isHolder(pid int64, h holder) (may, certain bool, err error) {
	name := strconv.FormatInt(pid, 10)
	status, err := os.ReadFile(p.path(name, "status"))
	if isGone(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	pids := holderproc.ParseNSpid(string(status))
	if len(pids) == 0 {
		return false, false, fmt.Errorf("process %d: its status file has no NSpid line", pid)
	}
	if pids[len(pids)-1] != h.pid {
		return false, false, nil
	}
	link, err := os.Readlink(p.path(name, "ns", "pid"))
	if err != nil {
		return true, false, nil
	}
	inode, ok := holderproc.ParseNamespace(link)
	return !ok || inode == h.namespace, ok, nil
}

// byStartTime returns the ids of all running processes by start time.
func (p proc) byStartTime() (map[int64][]int64, error) {
	dir, err := os.Open(p.root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int64][]int64, len(names))
	for _, name := range names {
		pid, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			continue
		}
		switch s, err := p.stat(pid); {
		case err == nil && !s.Ended():
			all[s.Start] = append(all[s.Start], pid)
		case err != nil && !isGone(err):
			return nil, err
		}
	}
	return all, nil
}

// checkVisible returns an error if the mount options of this /proc hide processes of other users from this process.
func (p proc) checkVisible() error {
	mounts, err := os.ReadFile(p.path("self", "mountinfo"))
	if err != nil {
		return err
	}
	mode, group := hidepidOptions(string(mounts), p.root)
	if mode == "" {
		return nil
	}
	status, err := os.ReadFile(p.path("self", "status"))
	if err != nil {
		return err
	}
	if mayTrace(status) || mode != "4" && mode != "ptraceable" && inGroup(status, group) {
		return nil
	}
	return fmt.Errorf("/proc hides the processes of other users (hidepid=%s): give the witness the capability "+
		"CAP_SYS_PTRACE or the group of the mount option gid, or mount /proc without hidepid", mode)
}

// hidepidOptions returns the mount options hidepid and gid of the /proc mounted last; mode is empty if it hides
// nothing.
func hidepidOptions(mountinfo, root string) (mode, group string) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		kind := strings.Fields(after)
		if !ok || len(fields) < 5 || fields[4] != root || len(kind) < 3 || kind[0] != "proc" {
			continue
		}
		mode, group = "", "0"
		for option := range strings.SplitSeq(kind[2], ",") {
			if value, ok := strings.CutPrefix(option, "hidepid="); ok && value != "0" && value != "off" {
				mode = value
			}
			if value, ok := strings.CutPrefix(option, "gid="); ok {
				group = value
			}
		}
	}
	return mode, group
}

// capTrace is the bit of CAP_SYS_PTRACE.
const capTrace = 19

func mayTrace(status []byte) bool {
	caps, err := strconv.ParseUint(statusLine(status, "CapEff:"), 16, 64)
	return err == nil && caps&(1<<capTrace) != 0
}

func inGroup(status []byte, group string) bool {
	effective := strings.Fields(statusLine(status, "Gid:"))
	return len(effective) > 1 && effective[1] == group ||
		slices.Contains(strings.Fields(statusLine(status, "Groups:")), group)
}

func statusLine(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}
