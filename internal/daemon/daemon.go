// Package daemon has what long-running programs share: signals and exit status (Main), parts that start together and
// stop in order (Group), an HTTP server with TLS and passwords from a file (Server), probes and metrics (Ops), the log
// (Logger), and the version of the program (Build).
//
// A program creates its parts and adds them to a Group, each after those that it uses. On SIGTERM, readiness turns to
// 503. Everything keeps working for the shutdown delay, while load balancers react. Then the parts stop from the last
// to the first: no new removal starts, requests are answered, and the view stops last.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// The exit statuses of daemons.
const (
	exitOK      = 0
	exitFailure = 1 // something failed while running
	exitUsage   = 2 // a wrong flag, variable or file: retrying does not help
)

// repeatWindow is how long after the first signal the same one is ignored: timeout(1) and the like signal a process and
// then its whole group.
const repeatWindow = time.Second

// Main runs a program until it ends, and returns its exit status. The first SIGTERM or SIGINT ends the context; the
// second ends the process at once. An error is one sentence, with its hint if it has one: a line of the log if that is
// JSON in this format.
func Main(name, logFormat string, run func(context.Context) error) (status int) {
	end := exitReporter{name, LogSettings{Format: logFormat}}
	if !end.log.isConsole(os.Stderr) {
		defer end.recover(&status)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	go func() {
		first := <-signals
		firstAt := time.Now()
		cancel(fmt.Errorf("signal: %s", first))
		second := <-signals
		for second == first && time.Since(firstAt) < repeatWindow {
			second = <-signals
		}
		end.say(fmt.Sprintf("second signal (%s): exiting without waiting for requests in flight", second))
		os.Exit(exitFailure)
	}()
	return end.with(run(ctx))
}

// exitReporter reports why a program ends.
type exitReporter struct {
	program string
	log     LogSettings
}

func (e exitReporter) say(sentence string) {
	if e.log.isConsole(os.Stderr) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", e.program, sentence)
		return
	}
	log := Logger(e.log, os.Stderr)
	log.Error().Msg(sentence)
}

// recover logs a panic, which would be many lines of text.
func (e exitReporter) recover(status *int) {
	if p := recover(); p != nil {
		log := Logger(e.log, os.Stderr)
		log.Error().Bytes("stack", debug.Stack()).Msgf("panic: %v", p)
		*status = exitFailure
	}
}

// with reports an error, and returns the exit status.
func (e exitReporter) with(err error) int {
	if err == nil {
		return exitOK
	}
	sentence := strings.NewReplacer(":\n  ", ": ", "\n  ", "; ", "\n", "; ").Replace(err.Error())
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		sentence += "; " + hint.Hint()
	}
	e.say(sentence)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitFailure
}

// Usage marks an error as a mistake in usage or configuration. Usage(nil) is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }
func (e *usageError) ExitCode() int { return exitUsage }

// Group runs the parts of a program concurrently and stops them in order.
type Group struct {
	Log   zerolog.Logger
	Ready *Readiness // turned off first at shutdown; may be nil
	// Delay is how long all parts keep working after that. It is skipped if a part failed.
	Delay time.Duration
	// Timeout is how long all parts together may take to stop; 0 for no limit.
	Timeout time.Duration

	parts []*part
}

type part struct {
	name string
	run  func(context.Context) error
	stop context.CancelFunc
	done chan struct{}
	err  error // once done
}

// Add adds a part. run must run until its context ends, and then return nil; anything else is a failure. Parts stop one
// after the other, the last added first.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.parts = append(g.parts, &part{name: name, run: run, done: make(chan struct{})})
}

// AddServer binds the address of a server, so that an error is reported before anything runs, and adds it as a part.
func (g *Group) AddServer(name string, s *Server) error {
	s.Log = g.Log
	_, err := s.Listen()
	g.Add(name, s.Run)
	return err
}

// Run runs all parts until ctx or one of them ends. It returns when all have stopped, with the first failure and the
// part that did not stop in time. It is called once.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *part, len(g.parts))
	for _, p := range g.parts {
		p.start(context.WithoutCancel(ctx), ended)
	}
	failure := g.wait(ctx, ended)
	return errors.Join(failure, g.stop())
}

func (p *part) start(ctx context.Context, ended chan<- *part) {
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		p.err = p.run(ctx)
		close(p.done)
		ended <- p
	}()
}

// wait blocks until the parts must stop.
func (g *Group) wait(ctx context.Context, ended <-chan *part) error {
	select {
	case p := <-ended:
		g.Ready.Drain()
		return p.failure()
	case <-ctx.Done():
	}
	g.Ready.Drain()
	g.Log.Info().AnErr("cause", context.Cause(ctx)).Stringer("delay", g.Delay).
		Msg("stopping: no longer ready, still working for the delay")
	select {
	case p := <-ended:
		return p.failure()
	case <-time.After(g.Delay):
		return nil
	}
}

func (p *part) failure() error {
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.name)
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}

func (g *Group) stop() error {
	var late <-chan time.Time
	if g.Timeout > 0 {
		late = time.After(g.Timeout)
	}
	for i := len(g.parts) - 1; i >= 0; i-- {
		p := g.parts[i]
		p.stop()
		select {
		case <-p.done:
			g.Log.Debug().Str("part", p.name).Msg("stopped")
		case <-late:
			for _, rest := range g.parts[:i] {
				rest.stop()
			}
			return fmt.Errorf("%s did not stop within %v", p.name, g.Timeout)
		}
	}
	return nil
}

// version is set by builds that know it better than Go does: -ldflags "-X <package>.version=v1.2.3".
var version string

const (
	unknown = "unknown"
	// devel is the version of a build of a checkout without tags, and of go run.
	devel = "devel"
)

// Build identifies a build. What is not known is "unknown".
type Build struct {
	Version string `json:"version"`
	// of the version control system; it ends in -dirty when the tree had uncommitted changes
	Revision  string `json:"revision"`
	GoVersion string `json:"go_version"`
}

// CurrentBuild returns the build of the running program.
func CurrentBuild() Build {
	info := Build{Version: version}
	if recorded, ok := debug.ReadBuildInfo(); ok {
		info.Version = cmp.Or(info.Version, strings.Trim(recorded.Main.Version, "()")) // Go writes (devel)
		info.Revision = revision(recorded.Settings)
		info.GoVersion = recorded.GoVersion
	}
	info.Version = cmp.Or(info.Version, unknown)
	info.Revision = cmp.Or(info.Revision, unknown)
	info.GoVersion = cmp.Or(info.GoVersion, unknown)
	return info
}

// Line returns which build a program is: "unlocker v1.2.3 (revision 4f2a…, go1.26.0)".
func (i Build) Line(program string) string {
	detail := i.GoVersion
	switch {
	case i.Revision != unknown:
		detail = "revision " + i.Revision + ", " + detail
	case i.Version == devel:
		detail += "; built without a revision, as by go run"
	}
	return fmt.Sprintf("%s %s (%s)", program, i.Version, detail)
}

func revision(settings []debug.BuildSetting) string {
	recorded := map[string]string{}
	for _, s := range settings {
		recorded[s.Key] = s.Value
	}
	if recorded["vcs.revision"] != "" && recorded["vcs.modified"] == "true" {
		return recorded["vcs.revision"] + "-dirty"
	}
	return recorded["vcs.revision"]
}
