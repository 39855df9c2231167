package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// lockPage is the page of one lock.
type lockPage struct {
	page
	Name     string
	Look     look
	Sentence sentence
	Share    string     // what the holder has of a lock that several can hold
	Whole    *wholeLock // that lock
	Purpose  string
	Progress string
	Timeline *timeline
	Facts    []fact
	Times    []timeFact
	Problems []metadata.Problem
	Fate     string // what the unlocker does with a malformed record
	Clock    string // the holder's clock, where it is off
	Skew     string // what follows from it
	Trace    *stacktrace.Trace
	Hidden   string // why there is no backtrace
	RawTrace string
	Waiters  []waiterView
	Recorded bool // waiters are
	Commands []command
	Links    []choice
	Fields   []fieldView
	Unread   string // why etcd could not be read
	Ended    *endedView
	Free     bool // nobody holds the lock any more
	Past     lockPast
	Cycles   []cycleView
	Current  string // link to the current hold when another was asked for
	Back     string
	Force    string // where the hold can be ended by force
	Framed   bool   // the page may be in a frame, where that one is not shown
	NoForce  string // why it can not
	Unlock   string // how to end the hold on the command line
}

func (d *Dashboard) lock(r *http.Request) (answer, error) {
	r, cancel := d.hurried(r)
	defer cancel()
	v, err := d.find(r)
	if err != nil {
		return answer{}, err
	}
	if v.row == nil && v.ending == nil {
		return d.shared(r, v)
	}
	p := d.lockPage(callerOf(r), v)
	p.Past = d.pastOf(r, p.Name, p.lens)
	p.Cycles = d.cyclesOf(p.Name)
	body, err := d.render("lock", p)
	return answer{Type: typeHTML, Body: body}, err
}

func (d *Dashboard) lockPage(c access.Caller, v *lockView) lockPage {
	if v.ending != nil {
		return d.endedPage(c, v)
	}
	row, at := v.row, d.lens().of(v)
	p := lockPage{page: d.page(c, row.Name), Name: row.Name, Look: row.look, Purpose: row.Purpose,
		Problems: row.Problems}
	p.Follows = true
	p.Here, p.JSON, p.Back = "list", d.urls.LockAPI(row.Name), d.urls.Back(v.view)
	p.Icon = icon{Look: row.look}
	p.Unread = v.unread
	p.Recorded = d.config.Waiters != nil
	p.Sentence = holderSentence(row, at, v.document.Fields)
	p.Share = row.share.words()
	p.Whole = d.whole(row)
	if v.asked != "" {
		p.Current = d.urls.Lock(row.Name, row.UUID)
	}
	if row.Alive != nil {
		p.Progress = row.Alive.Progress
	}
	p.Timeline = newTimeline(row, at)
	p.Facts = facts(row, v)
	p.Times = times(row, at)
	if row.Malformed() {
		p.Fate = d.fate(row)
	}
	p.Clock = clockWords(row.verdict.ClockOff)
	p.Skew = skewSentence(row, p.now)
	switch {
	case d.noBacktraces(c, row.Owner) != "":
		p.Hidden = d.noBacktraces(c, row.Owner)
	case v.unread != "":
		if p.Trace = d.reader.Read(d.traces.of(row).text); p.Trace == nil {
			p.Hidden = "Not read from etcd: " + v.unread + "."
		}
	default:
		p.Trace = d.reader.Read(v.document.Backtrace)
		p.RawTrace = d.urls.Backtrace(row.Name, row.UUID)
	}
	p.Waiters = d.waiterViews(v.waiters, p.lens)
	p.Commands = d.commands(row)
	p.Links = d.links(row)
	p.Unlock = "mutexctl force-unlock " + shell(row.Name)
	switch {
	case row.Misplaced:
		p.NoForce = "Nothing here can remove this record: it lies at the keys of no lock. Remove it by hand, as below, when you know that nobody works under it."
	case d.config.ForceUnlock == nil:
	case !c.MaySome(access.Unlock):
		p.NoForce = "Force unlock needs the permission unlock."
	case !c.MayFor(access.Unlock, row.Owner):
		p.NoForce = "You may force-unlock locks of other owners only."
	case p.stale || v.unread != "" && !v.silent:
		p.NoForce = "No force unlock now: etcd is away, and what you see may have changed."
	default:
		p.Force = d.urls.Unlock(row.Name, row.UUID, v.view)
		p.Framed = len(d.config.FrameAncestors) > 0
	}
	p.Fields = d.fieldViews(c, v.document)
	return p
}

// skewSentence says what it means for the lock that its holder's clock differs from the one here.
func skewSentence(r *row, now time.Time) string {
	ahead := r.LockedAt.Sub(now)
	switch off := r.verdict.ClockOff; {
	case off < 0:
		return "clock skew -" + short(-off) +
			": the holder's clock is behind this dashboard's. The auto-unlock is shown by the clock here, which is later than the record says"
	case off > 0:
		return "clock skew +" + short(off) +
			": the holder's clock is ahead of this dashboard's. The alert is shown by the clock here, which is earlier than the record says"
	case ahead > 5*time.Second:
		return "clock skew +" + short(ahead) + ": the holder's clock is ahead of this dashboard's"
	}
	return ""
}

// holderSentence says who holds the lock and what happens next. fields are those of its record, where they are known.
func holderSentence(r *row, at lens, fields []metadata.Field) sentence {
	var s sentence
	if at.stale {
		s = s.say("As of " + clock(at.asOf) + " UTC: ")
	}
	if r.Token == 0 {
		s = s.say("Not held by anybody, but keys of it are there")
	} else {
		s = s.say("Held")
	}
	if r.Owner != "" {
		s = s.say(" by ").value(r.Owner)
	}
	if host := hostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.say(" on ").value(host)
	}
	if held := at.lasting(r.LockedAt); held != nil {
		s = s.say(" for ").time(held)
	}
	s = s.say(".")
	unlock := at.next(r.verdict.AutoUnlockAt)
	switch {
	case unlock == nil:
		return s.alert(r, at).say(" It never unlocks by itself.")
	case unlock.Kind == "over":
		return s.alert(r, at).say(" The auto-unlock is late by ").time(at.age(r.verdict.AutoUnlockAt)).say(".")
	case unlock.Kind == "":
		return s.alert(r, at).say(" Its deadline passed, outcome unknown.")
	case r.verdict.State != staleness.Held || !r.verdict.AlertsAtUnlock():
		return s.alert(r, at).say(" Auto-unlock ").time(unlock).say(".")
	case !staleness.KeptAlive(r.Record):
		return s.say(" Unless it is extended, alert and auto-unlock ").time(unlock).say(".")
	}
	s = s.say(" Extended")
	if every := rhythm(r, fields); every > 0 {
		s = s.say(" every " + short(every) + ",")
	}
	return s.say(" last ").time(at.lasting(r.Alive.At)).say(" ago. If it stays silent, alert and auto-unlock ").time(unlock).say(".")
}

// alert says when people are alerted, or since when they are.
func (s sentence) alert(r *row, at lens) sentence {
	switch alert := r.verdict.AlertAt; {
	case r.verdict.State == staleness.Alerting:
		return s.say(" Alerting for ").time(at.lasting(alert)).say(".")
	case r.verdict.State == staleness.Held && alert.After(at.asOf):
		return s.say(" Alert ").time(at.alert(alert)).say(".")
	}
	return s
}

// fate says what the unlocker does with a record that lacks a deadline.
func (d *Dashboard) fate(r *row) string {
	var s strings.Builder
	switch {
	case r.AlertAt.IsZero() && r.verdict.AlertAt.IsZero():
		s.WriteString("It never alerts as a lock, only as a malformed one. ")
	case r.AlertAt.IsZero():
		s.WriteString("The default policy alerts at " + utc(r.verdict.AlertAt) + ". ")
	}
	switch {
	case r.AutoUnlockAt.IsZero() && r.verdict.AutoUnlockAt.IsZero():
		s.WriteString("It is never removed for a deadline that cannot be read: somebody must unlock it.")
	case r.AutoUnlockAt.IsZero():
		s.WriteString("The default policy removes it at " + utc(r.verdict.AutoUnlockAt) + ".")
	default:
		s.WriteString("It is removed at its deadline like any other.")
	}
	return s.String()
}

// backtrace answers with a backtrace as it was recorded.
func (d *Dashboard) backtrace(r *http.Request) (answer, error) {
	v, err := d.find(r)
	switch {
	case err != nil:
		return answer{}, err
	case d.noBacktraces(callerOf(r), v.owner()) != "":
		return answer{}, d.admitFor(callerOf(r), access.Backtrace, v.owner())
	case v.unread != "":
		return answer{}, &problem{Status: http.StatusServiceUnavailable, Code: "stale", Title: "etcd did not answer",
			Detail: "The backtrace could not be read: " + v.unread + ".", Retry: 5 * time.Second}
	case v.row == nil || v.asked != "" || v.document.Backtrace == "":
		return answer{}, &problem{Status: http.StatusNotFound, Code: "not_found", Title: "No backtrace",
			Detail: "None is recorded for this hold."}
	}
	return answer{
		Type: "text/plain; charset=utf-8", Body: []byte(v.document.Backtrace),
		Header: map[string]string{"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'"},
	}, nil
}

// waiterView is one who waits for the lock.
type waiterView struct {
	Place   int
	Owner   string
	Host    string
	Purpose string
	Since   *moment
	Timeout *moment
}

func (d *Dashboard) waiterViews(queue []metadata.Waiter, at lens) []waiterView {
	queue = slices.Clone(queue)
	slices.SortStableFunc(queue, func(a, b metadata.Waiter) int { return int(min(max(a.Place-b.Place, -1), 1)) })
	views := make([]waiterView, len(queue))
	for i, w := range queue {
		views[i] = waiterView{i + 1, w.Owner, hostPID(w.Hostname, w.PID), w.Purpose, at.lasting(w.Since.Time),
			at.alert(w.TimeoutAt.Time)}
	}
	return views
}
