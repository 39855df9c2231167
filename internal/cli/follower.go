package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// follower writes the lines of watch.
type follower struct {
	options  *watchOptions
	waiters  func(lock string) []metadata.Waiter
	reported map[hold]string // the last event reported of every hold
	stale    bool            // the user was warned that the lines are not up to date
	wake     chan struct{}

	mu   sync.Mutex
	ends []end // noted by the view, not yet reported
}

type end struct {
	record *metadata.Record
	ending *metadata.Ending
}

// ended is called by the view, from a goroutine of its own.
func (f *follower) ended(r *metadata.Record, e *metadata.Ending) {
	f.mu.Lock()
	f.ends = append(f.ends, end{r, e})
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *follower) takeEnds() []end {
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := f.ends
	f.ends = nil
	return ends
}

func (f *follower) now() time.Time { return f.options.app.Now() }

// update reports what is new, and returns when the next lock changes its state by itself. It takes the ends before the
// locks, so that no lock among them has ended.
func (f *follower) update(locks func() []*metadata.Record) (next time.Time, err error) {
	for _, e := range f.takeEnds() {
		if err := f.reportEnd(e); err != nil {
			return next, err
		}
	}
	now := f.now()
	for _, r := range locks() {
		if !f.options.globs.match(r.Name) {
			continue
		}
		v := judge(r, now)
		if !v.Next.IsZero() && (next.IsZero() || v.Next.Before(next)) {
			next = v.Next
		}
		if err := f.report(r, string(v.State)); err != nil {
			return next, err
		}
	}
	return next, nil
}

// report writes the event unless it was the last one reported of this hold.
func (f *follower) report(r *metadata.Record, event string) error {
	if f.reported[holdOf(r)] == event {
		return nil
	}
	f.reported[holdOf(r)] = event
	return f.write(r, event, nil)
}

// reportEnd writes how a hold ended, and before that that it was held, if it came and went between two updates.
func (f *follower) reportEnd(e end) error {
	if !f.options.globs.match(e.record.Name) {
		return nil
	}
	if _, known := f.reported[holdOf(e.record)]; !known {
		if err := f.report(e.record, string(judge(e.record, f.now()).State)); err != nil {
			return err
		}
	}
	delete(f.reported, holdOf(e.record))
	if e.ending == nil {
		e.ending = new(metadata.NewEnding(e.record, metadata.EndedReleased, "", "", time.Time{}))
	}
	return f.write(e.record, "ended", e.ending)
}

// eventJSON is one line of watch for scripts.
type eventJSON struct {
	Time   string           `json:"time"`
	Event  string           `json:"event"`
	Lock   lockjson.Lock    `json:"lock"`
	Ending *lockjson.Ending `json:"ending"`
}

func (f *follower) write(r *metadata.Record, event string, ending *metadata.Ending) error {
	now := f.now()
	a := f.options.app
	if f.options.format.JSON() {
		j := eventJSON{Time: lockjson.Time(now), Event: event, Lock: newLockJSON(r, f.waiters(r.Queue()), now)}
		if ending != nil {
			j.Ending = new(lockjson.NewEnding(ending, now))
		}
		return writeJSON(a.Stdout, j)
	}
	line := fmt.Sprintf("%s  %-9s  %s  ", now.UTC().Format("2006-01-02 15:04:05Z"), event, text.Visible(r.Name))
	switch {
	case ending != nil:
		line += endingSentence(ending)
		if !r.LockedAt.IsZero() {
			line += " after " + age(r.LockedAt, now)
		}
		line += ", was held by " + who(r)
	default:
		line += "held by " + who(r)
		if r.Purpose != "" {
			line += " for " + shortText(r.Purpose)
		}
		if r.Proven() {
			line += "; " + protocol.HowItEnded(r.Death, now)
		}
	}
	_, err := fmt.Fprintln(a.Stdout, line)
	return err
}

func who(r *metadata.Record) string {
	text := shortText(r.Owner) + " on " + hostPID(r)
	if words := shareWords(metadata.ShareOf(r.Name, r.Attributes)); words != "" {
		text += " as " + words
	}
	return text
}

func endingSentence(e *metadata.Ending) string {
	words := map[string]string{
		metadata.EndedReleased: "released", metadata.EndedAutoUnlocked: "auto-unlocked",
		metadata.EndedForced: "force-unlocked", metadata.EndedAbandoned: "auto-unlocked as abandoned",
	}[e.Ended]
	if words == "" {
		words = "ended (" + text.Visible(e.Ended) + ")"
	}
	if e.By != "" {
		words += " by " + text.Visible(e.By)
	}
	if e.Why != "" {
		words += " (" + text.Prose(e.Why) + ")"
	}
	return words
}

// briefly is how long the lines may lag before a warning: a lost watch is usually back at once.
const briefly = 2 * time.Second

// reportFreshness says on stderr when the lines are no longer up to date, and when they are again.
func (f *follower) reportFreshness(fresh lockview.Freshness) {
	switch {
	case !fresh.Synced && !f.stale && f.now().Sub(fresh.Since) > briefly:
		f.options.app.note("not up to date: %s", fresh.Cause)
		f.stale = true
	case fresh.Synced && f.stale:
		f.options.app.note("up to date again")
		f.stale = false
	}
}
