package mutex

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// ownModule and ownPackage name this code in build information and in stack frames.
const (
	ownModule  = "github.com/clustermutex/unlocker"
	ownPackage = ownModule + "/pkg/mutex."
)

// backtrace is the call stack of the caller of this package, newest frame first, one frame a line: "file:line in function".
// runtime.Callers costs a tenth of what debug.Stack does.
func backtrace(depth int) string {
	if depth == 0 {
		return ""
	}
	const own = 8 // at most so many frames are ours
	pcs := make([]uintptr, depth+own)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for n := 0; n < depth; {
		f, more := frames.Next()
		if skip := n == 0 && strings.HasPrefix(f.Function, ownPackage); !skip && f.Function != "" && f.Function != "runtime.goexit" {
			b.WriteString(f.File)
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(f.Line))
			b.WriteString(" in ")
			b.WriteString(f.Function)
			b.WriteByte('\n')
			n++
		}
		if !more {
			break
		}
	}
	return b.String()
}

// library is the client member of the records: this library and its version, as far as the build knows it.
func library() string {
	const name = "unlocker-go"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == ownModule && m.Version != "" {
			return name + " " + m.Version
		}
	}
	return name
}
