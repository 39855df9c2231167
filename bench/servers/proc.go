package servers

import (
	"fmt"
	"os"
	"strings"
)

// afterCommand splits /proc/PID/stat behind the name of the program, which may contain blanks and parentheses.
func afterCommand(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// memoryOf reads what a process occupies from /proc.
func memoryOf(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status does not tell the memory", pid)
}
