package servers

import (
	"fmt"
	"os"
	"strings"
)

// afterCommand splits the fields of /proc/PID/stat after the program's name, which may contain blanks and parentheses.
func afterCommand(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// memoryOf reads the memory of a process from /proc: RssAnon is what it uses now without mapped files, VmHWM the most
// that it ever used, with them.
func memoryOf(pid int, kind string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, kind+": %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status does not contain %s", pid, kind)
}
