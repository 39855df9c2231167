package servers

import "strings"

// afterCommand splits /proc/PID/stat behind the name of the program, which may contain blanks and parentheses.
func afterCommand(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}
