package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/rs/zerolog"
)

// Process is what a command line uses of the process that it runs in.
type Process struct {
	Args                  []string // without the program's name
	Stdin, Stdout, Stderr *os.File
	Now                   func() time.Time
	// makes the log, as --log.level and --log.format ask for it
	Log func(level, format string) zerolog.Logger
}

// app is what all commands share.
type app struct {
	Process
	command string // that runs: "mutexctl run"
	etcd    *etcdconn.Settings
	locks   *flags.LockSettings
	log     func() zerolog.Logger
	quiet   bool // leaves out notes about what is in order
}

// note reports on stderr what goes on, in a line that names the command.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "%s: %s\n", a.command, text.Prose(fmt.Sprintf(format, args...)))
}

// mention is a note about what is in order.
func (a *app) mention(format string, args ...any) {
	if !a.quiet {
		a.note(format, args...)
	}
}

// interactive reports whether a person can be asked.
func (a *app) interactive() bool { return term.Is(a.Stdin) && term.Is(a.Stderr) }
