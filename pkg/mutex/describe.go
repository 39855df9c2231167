package mutex

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// describe returns one line: who holds a lock, where, since when, what for, and its deadlines.
func describe(r *metadata.Record, now time.Time) string {
	if together := !r.AlertAt.IsZero() && !r.AlertAt.Before(r.AutoUnlockAt) && isFuture(r.AutoUnlockAt, now); together {
		return describeHolder(r, now) + "; unless extended, it alerts and is auto-unlocked " +
			text.RelativeWords(r.AutoUnlockAt, now)
	}
	return describeHolder(r, now) +
		"; " + due(r.AlertAt, now, "alert", "alerted", "no readable alert time") +
		", " + due(r.AutoUnlockAt, now, "auto-unlock", "auto-unlock was due", "no readable auto-unlock time")
}

// describeHolder is describe without the deadlines.
func describeHolder(r *metadata.Record, now time.Time) string {
	var b strings.Builder
	b.WriteString(cmp.Or(plain(r.Owner), "an unknown owner"))
	if r.Hostname != "" {
		b.WriteString(" on " + plain(r.Hostname))
	}
	if r.PID != 0 {
		fmt.Fprintf(&b, " (pid %d)", r.PID)
	}
	if !r.LockedAt.IsZero() {
		b.WriteString(", taken " + text.RelativeWords(r.LockedAt, now))
	}
	if r.Purpose != "" {
		b.WriteString(" for " + strconv.Quote(clip(r.Purpose)))
	}
	return b.String()
}

func due(t, now time.Time, next, past, unknown string) string {
	switch {
	case t.IsZero():
		return unknown
	case isFuture(t, now):
		return next + " " + text.RelativeWords(t, now)
	}
	return past + " " + text.RelativeWords(t, now)
}

// isFuture reports whether t lies in the future. What is less than a second away is called "just now".
func isFuture(t, now time.Time) bool { return t.Sub(now) >= time.Second }

func describeEnding(e *metadata.Ending, now time.Time) string {
	words, _ := metadata.EndingWordsFor(e.Cause)
	var b strings.Builder
	b.WriteString(plain(words.Verb) + " by " + cmp.Or(plain(e.By), "an unknown caller"))
	if !e.EndedAt.IsZero() {
		b.WriteString(" " + text.RelativeWords(e.EndedAt.Time, now))
	}
	if e.Reason != "" {
		b.WriteString(": " + plain(e.Reason))
	}
	return b.String()
}

// maxQuoted is how many bytes of outside text go into one sentence.
const maxQuoted = 120

// plain makes text from outside harmless in a sentence.
func plain(s string) string { return text.Visible(clip(s)) }

func clip(s string) string { return text.Clip(s, maxQuoted) }

// describeRequest returns who asks, when and why: "ann 5 seconds ago: the deploy waits".
func describeRequest(r *metadata.FinishRequest, now time.Time) string {
	who := cmp.Or(plain(r.By), "an unknown caller")
	if r.Source == metadata.SourceWaiter {
		who += ", who waits for it,"
	}
	if !r.At.IsZero() {
		who += " " + text.RelativeWords(r.At.Time, now)
	}
	return who + ": " + cmp.Or(plain(r.Reason), "no reason given")
}

// ownModule is the path of this module in build information and stack frames.
const ownModule = "github.com/clustermutex/unlocker"

// isOwn reports whether the function belongs to this package or to jobs, not to their caller.
func isOwn(function string) bool {
	return strings.HasPrefix(function, ownModule+"/pkg/mutex.") || strings.HasPrefix(function, ownModule+"/pkg/jobs.")
}

// maxOwnFrames is how many frames these packages may add to a stack above their caller.
const maxOwnFrames = 8

// callers returns the call stack of the caller of these packages, newest frame first, one frame a line: "file:line in
// function".
func callers(depth int) string {
	if depth == 0 {
		return ""
	}
	pcs := make([]uintptr, depth+maxOwnFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for n, more := 0, true; more && n < depth; {
		var f runtime.Frame
		f, more = frames.Next()
		if n == 0 && isOwn(f.Function) || f.Function == "runtime.goexit" {
			continue
		}
		fmt.Fprintf(&b, "%s:%d in %s\n", f.File, f.Line, f.Function)
		n++
	}
	return b.String()
}

// library returns the client member of the records: the name of this library and, if the build has it, its version.
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

// callSiteOf returns the line that called these packages, as "file:line". It is the first line of the backtrace if
// there is one.
func callSiteOf(backtrace string) string {
	if backtrace == "" {
		backtrace = callers(1)
	}
	site, _, _ := strings.Cut(backtrace, " in ")
	return cmp.Or(site, "an unknown line")
}
