// Package term writes for a terminal: tables, columns, colours, and the output format that a command is asked for.
package term

import (
	"os"

	xterm "golang.org/x/term"
)

// None stands in a table for what is not known.
const None = "-"

// TakesColours reports whether what is written to the file may be coloured: it is a terminal, of somebody who did not
// opt out (no-color.org).
func TakesColours(f *os.File) bool {
	return Is(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Is reports whether the file is a terminal.
func Is(f *os.File) bool { return xterm.IsTerminal(int(f.Fd())) }
