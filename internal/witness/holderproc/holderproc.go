// Package holderproc reads the permanent identity of a process: the boot of its machine, its pid namespace, its start
// time, and in Kubernetes its pod and container. A witness needs it to prove the end of the process.
//
// What cannot be read is left out, never guessed: a wrong identity would prove the end of a live process. On systems
// other than Linux, only the pod can be read, from the environment.
package holderproc

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source has the functions by which a process reads about itself. They return an empty string on any error.
type Source struct {
	Read   func(file string) string // the content of a small file
	Link   func(file string) string // the target of a symbolic link
	Getenv func(name string) string
}

// initialTimeNamespace is the inode of a machine's initial time namespace.
const initialTimeNamespace = 4026531834

// Self returns the identity of the calling process, read from its own /proc and environment.
func Self(s Source) metadata.Process {
	p := metadata.Process{
		PodNamespace: cmp.Or(nameOrEmpty(s.Getenv("POD_NAMESPACE")),
			nameOrEmpty(strings.TrimSpace(s.Read("/var/run/secrets/kubernetes.io/serviceaccount/namespace")))),
		PodName:   nameOrEmpty(s.Getenv("POD_NAME")),
		PodUID:    nameOrEmpty(s.Getenv("POD_UID")),
		Container: nameOrEmpty(s.Getenv("CONTAINER_NAME")),
	}
	if p.PodUID == "" || p.Container == "" {
		uid, container := ParseMounts(s.Read("/proc/self/mountinfo"))
		p.PodUID = cmp.Or(p.PodUID, uid, ParseCgroup(s.Read("/proc/self/cgroup")))
		if uid == p.PodUID {
			p.Container = cmp.Or(p.Container, container)
		}
	}
	if p.PodUID == "" && p.PodName == "" { // the other names are not from Kubernetes
		p = metadata.Process{}
	}
	p.BootID = nameOrEmpty(strings.TrimSpace(s.Read("/proc/sys/kernel/random/boot_id")))
	if p.BootID == "" {
		return p // process ids and start times are unique only within a boot
	}
	p.PIDNamespace, _ = ParseNamespace(s.Link("/proc/self/ns/pid"))
	if stat, ok := ParseStat(s.Read("/proc/self/stat")); ok && p.PIDNamespace != 0 && s.sharesMachineClock() {
		p.Start = stat.Start
	}
	return p
}

// sharesMachineClock reports whether the process counts ticks since boot as its machine does. In another time namespace
// it does not, and a witness would look for the wrong start time.
func (s Source) sharesMachineClock() bool {
	link := s.Link("/proc/self/ns/time")
	if link == "" { // a kernel without time namespaces
		return true
	}
	inode, _ := ParseNamespace(link)
	return inode == initialTimeNamespace
}

// System returns the source of the running process.
func System() Source {
	return Source{
		Read: func(file string) string {
			text, err := os.ReadFile(file)
			if err != nil {
				return "" // another system, or a sandbox
			}
			return string(text)
		},
		Link: func(file string) string {
			target, err := os.Readlink(file)
			if err != nil {
				return ""
			}
			return target
		},
		Getenv: os.Getenv,
	}
}

// Stat is the content of /proc/PID/stat.
type Stat struct {
	State    byte  // R, S, D, Z and so on: see proc_pid_stat(5)
	Threads  int64 // 1 for a process that has ended and was not reaped
	Start    int64 // start time in clock ticks since boot; exec does not change it
	ExitCode int64 // a wait status; 0 while the process runs, and for readers that may not trace it
}

// The numbers of the fields, as proc_pid_stat(5) counts them.
const (
	fieldState    = 3
	fieldThreads  = 20
	fieldStart    = 22
	fieldExitCode = 52
)

// ParseStat reads the text of /proc/PID/stat. The name of the program, in parentheses, may contain spaces, parentheses
// and line feeds; the text after its last parenthesis does not.
func ParseStat(text string) (s Stat, ok bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return Stat{}, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) <= fieldStart-fieldState || len(fields[0]) != 1 {
		return Stat{}, false
	}
	s.State = fields[0][0]
	numbers := map[int]*int64{fieldThreads: &s.Threads, fieldStart: &s.Start}
	if len(fields) > fieldExitCode-fieldState {
		numbers[fieldExitCode] = &s.ExitCode
	}
	for field, to := range numbers {
		n, err := strconv.ParseInt(fields[field-fieldState], 10, 64)
		if err != nil {
			return Stat{}, false
		}
		*to = n
	}
	return s, s.Start > 0
}

// Ended reports whether the process has ended, and only waits for its parent to reap it. The end of the first thread
// alone does not count.
func (s Stat) Ended() bool { return s.State == 'X' || s.State == 'Z' && s.Threads <= 1 }

// ParseNamespace reads the target of a link below /proc/PID/ns, such as pid:[4026531836].
func ParseNamespace(link string) (inode int64, ok bool) {
	_, rest, _ := strings.Cut(link, ":[")
	number, ok := strings.CutSuffix(rest, "]")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseInt(number, 10, 64)
	return inode, err == nil && inode > 0
}

// ParseNSpid reads the process ids in the text of /proc/PID/status: the first counts in the namespace of that /proc,
// the last in the innermost one, where the process itself lives. It is nil for a kernel before 4.1.
func ParseNSpid(status string) []int64 {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		var pids []int64
		for _, field := range strings.Fields(rest) {
			pid, err := strconv.ParseInt(field, 10, 64)
			if err != nil || pid <= 0 {
				return nil
			}
			pids = append(pids, pid)
		}
		return pids
	}
	return nil
}
