// Package cli implements the commands of mutexctl.
//
// [Main] runs one command line and returns its exit status. Everything it touches is in a [Process], so tests run the
// same code as the binary. Each command has a file, with an options struct, a constructor and a run method:
//
//   - run: run, alive, unlock, reserve, wait
//   - look: list, show, watch, history, check, periods, tasks
//   - act: ack, ask, extend, force-unlock
//   - set up: etcd-setup, version
//
// The files form layers, and each uses only files below it: root.go; the commands; what some of them share (report,
// take, job); connection and reading (session, read); words, flags and exit statuses (format, arguments, exit).
//
// Text from etcd is hostile. It reaches a terminal only through [text.Visible], and scripts only as JSON.
package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Process is what a command line needs from its process.
type Process struct {
	Args                  []string // without the program's name
	Stdin, Stdout, Stderr *os.File
	Now                   func() time.Time
	// Log makes the log for --log.level and --log.format.
	Log func(level, format string) zerolog.Logger
}

type app struct {
	Process
	command string // the one that runs: "mutexctl run"
	etcd    *etcdconn.Settings
	locks   *protocol.Layout

	etcdLocks []string // prefixes of other libraries' locks
	log       func() zerolog.Logger
	quiet     bool // suppresses noteUnlessQuiet
}

// note prints a line on stderr that begins with the command. It waits no longer than noteTimeout: a full pipe must not
// delay the end of a command whose lock is lost, nor the release of a lock whose command has ended or has not begun.
func (a *app) note(format string, args ...any) {
	line := fmt.Sprintf("%s: %s\n", a.command, text.Prose(fmt.Sprintf(format, args...)))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(a.Stderr, line)
	}()
	select {
	case <-written:
	case <-time.After(noteTimeout):
	}
}

// noteTimeout is much shorter than the second that the lock's safety margin has in addition to the grace period.
const noteTimeout = 200 * time.Millisecond

func (a *app) noteUnlessQuiet(format string, args ...any) {
	if !a.quiet {
		a.note(format, args...)
	}
}

// notFree gives the error of a lock that was not free in time this status, and drops it if --quiet is given.
func (a *app) notFree(err error, as int) error {
	switch {
	case status(err) != ExitHeld, isReported(err): // the status of a command
		return err
	case a.quiet:
		return commandStatus(as)
	}
	return &statusError{as, err}
}

// width returns how many columns a table may take; 0 for any number.
func (a *app) width(f *term.Format) int {
	if f.String() == term.WideFormat {
		return 0
	}
	return term.Width(a.Stdout)
}

// writeTable writes a table to stdout, and the notes that are not empty to stderr.
func (a *app) writeTable(t *term.Table, notes ...string) error {
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	return a.writeNotes(notes...)
}

// writeNotes writes the notes that are not empty to stderr, one per line.
func (a *app) writeNotes(notes ...string) error {
	for _, note := range notes {
		if note == "" {
			continue
		}
		if _, err := fmt.Fprintln(a.Stderr, note); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) interactive() bool { return term.IsTerminal(a.Stdin) && term.IsTerminal(a.Stderr) }

// The environment variables that tell a command which lock it runs under.
const (
	envName  = "MUTEX_NAME"
	envToken = "MUTEX_TOKEN"

	envAskedBy     = "MUTEX_ASKED_BY" // of the command of --on-ask
	envAskedReason = "MUTEX_ASKED_REASON"
)

func lockEnvironment(lock *mutex.Lock) []string {
	return append(os.Environ(), envName+"="+lock.Name(), protocol.EnvUUID+"="+lock.UUID(),
		protocol.EnvUnder+"="+protocol.Under(os.Getenv, lock.UUID()), fmt.Sprintf("%s=%d", envToken, lock.Token()))
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The version of this program",
		Example: `  mutexctl version
  mutexctl version -o json | jq -r .version`,
		Args: argCount(0, 0, ""),
	}
	format := term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := daemon.CurrentBuild()
		if format.JSON() {
			return writeJSON(a.Stdout, v)
		}
		_, err := fmt.Fprintln(a.Stdout, v.Line("mutexctl"))
		return err
	}
	return cmd
}
