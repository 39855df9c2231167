// Package term writes to terminals: tables, columns, colours, and the flag for the output format.
package term

import (
	"os"

	xterm "golang.org/x/term"
)

// None stands for an unknown value in a table.
const None = "-"

// TakesColours reports whether output to the file may be coloured: it is a terminal, and its user has not opted out
// (no-color.org).
func TakesColours(f *os.File) bool {
	return Is(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Is reports whether the file is a terminal.
func Is(f *os.File) bool { return xterm.IsTerminal(int(f.Fd())) }
