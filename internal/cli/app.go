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

// Process is what a command line needs from its process.
type Process struct {
	Args                  []string // without the program's name
	Stdin, Stdout, Stderr *os.File
	Now                   func() time.Time
	// Log makes the log for --log.level and --log.format.
	Log func(level, format string) zerolog.Logger
}

// app is what all commands share.
type app struct {
	Process
	command  string // the one that runs: "mutexctl run"
	etcd     *etcdconn.Settings
	locks    *flags.LockSettings
	clusters clusterFlags
	log      func() zerolog.Logger
	quiet    bool // leaves out what mention reports
}

// note prints a line on stderr that begins with the command.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "%s: %s\n", a.command, text.Prose(fmt.Sprintf(format, args...)))
}

// mention is a note that --quiet leaves out.
func (a *app) mention(format string, args ...any) {
	if !a.quiet {
		a.note(format, args...)
	}
}

// interactive reports whether there is a terminal to ask on.
func (a *app) interactive() bool { return term.Is(a.Stdin) && term.Is(a.Stderr) }
