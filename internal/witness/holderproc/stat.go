package holderproc

import (
	"strconv"
	"strings"
)

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	State    byte  // R, S, D, Z and so on: see proc_pid_stat(5)
	Threads  int64 // of a process that ended and was not reaped: 1
	Start    int64 // when the process began, in clock ticks since boot; exec does not change it
	ExitCode int64 // a wait status; 0 while the process runs, and for readers who may not trace it
}

// The numbers of the fields, as proc_pid_stat(5) counts them.
const (
	fieldState    = 3
	fieldThreads  = 20
	fieldStart    = 22
	fieldExitCode = 52
)

// ParseStat reads the text of /proc/PID/stat. The name of the program, which stands in parentheses, may contain blanks,
// parentheses and line feeds; what follows its last parenthesis does not.
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

// Ended reports whether the process has ended and only waits for its parent to reap it. While other threads of it run,
// a first thread that ended does not count.
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
