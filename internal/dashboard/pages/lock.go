package pages

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// lockPage is the page of one lock.
type lockPage struct {
	site.Page
	Name     string
	Look     locks.DisplayState
	Death    phrase.Sentence // how the holder ended and what follows; nil where that is not known
	Doubt    phrase.Sentence // what a witness says that proves nothing
	Sentence phrase.Sentence
	Share    string     // what the holder has of a lock that several can hold
	Whole    *WholeLock // that lock
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
	Waiters  []WaiterView
	Recorded bool // waiters are
	Commands []Command
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
	NoForce  string // why it cannot
	Unlock   string // how to end the hold on the command line
}

func (d *Pages) ServeLock(r *site.Request) (site.Answer, error) {
	r, cancel := d.Hurried(r)
	defer cancel()
	v, err := d.Find(r)
	if err != nil {
		return site.Answer{}, err
	}
	if v.Row == nil && v.Ending == nil {
		return d.shared(r, v)
	}
	p := d.lockPage(r, v)
	p.Past = d.pastOf(r, p.Name, p.Viewpoint)
	p.Cycles = d.cyclesOf(r, p.Name)
	body, err := d.Render("lock", p)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}

func (d *Pages) lockPage(r *site.Request, v *site.Lock) lockPage {
	if v.Ending != nil {
		return d.endedPage(r, v)
	}
	c := r.Caller
	row := v.Row
	at := v.Viewpoint(r.Viewpoint())
	p := lockPage{Page: d.Page(r, row.Name), Name: row.Name, Look: row.Display, Purpose: row.Purpose,
		Problems: row.Problems}
	p.Follows = true
	p.Here = "list"
	p.JSON = d.Urls.LockAPI(row.Name)
	p.Back = d.Urls.Back(FromView(d.Urls, r))
	p.Icon = site.Icon{Look: row.Display}
	p.Unread = v.Unread
	p.Recorded = d.Config.Waiters != nil
	p.Death = d.deathSentence(row, at)
	p.Doubt = doubt(row.Record, at)
	p.Sentence = HolderSentence(row, at, v.Document.Fields)
	p.Share = row.Share.Words()
	p.Whole = d.Whole(r, row)
	if v.AskedHold != "" {
		p.Current = d.Urls.Lock(row.Name, row.UUID)
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
	p.Clock = phrase.ClockOff(row.Verdict.ClockOff)
	p.Skew = skewSentence(row, p.Viewpoint.Now)
	d.fillTrace(&p, c, v)
	p.Waiters = d.WaiterViews(v.InLine, p.Viewpoint)
	p.Commands = d.commands(row)
	p.Links = d.links(row)
	p.Unlock = "mutexctl force-unlock " + site.Shell(row.Name)
	d.fillForce(&p, r, v)
	p.Fields = d.fieldViews(c, v.Document)
	return p
}

// fillTrace adds where in the code the lock was taken, or why that is not shown.
func (d *Pages) fillTrace(p *lockPage, c access.Caller, v *site.Lock) {
	row := v.Row
	switch {
	case d.NoBacktraces(c, row.Owner) != "":
		p.Hidden = d.NoBacktraces(c, row.Owner)
	case v.Unread != "":
		if p.Trace = d.reader.Read(d.Traces.Of(row).Text); p.Trace == nil {
			p.Hidden = "Not read from etcd: " + v.Unread + "."
		}
	default:
		p.Trace = d.reader.Read(v.Document.Backtrace)
		p.RawTrace = d.Urls.Backtrace(row.Name, row.UUID)
	}
}

// fillForce adds the link to the force unlock, or why there is none.
func (d *Pages) fillForce(p *lockPage, r *site.Request, v *site.Lock) {
	c := r.Caller
	row := v.Row
	switch {
	case row.Misplaced:
		p.NoForce = "Nothing here can remove this record: it lies at the keys of no lock. Remove it by hand, as " +
			"below, when you know that nobody works under it."
	case d.Config.ForceUnlock == nil:
	case !c.MaySome(access.Unlock):
		p.NoForce = "Force unlock needs the permission unlock."
	case !c.MayFor(access.Unlock, row.Owner):
		p.NoForce = "You may force-unlock locks of other owners only."
	case p.Stale || v.Unread != "" && !v.Silent:
		p.NoForce = "No force unlock now: etcd is away, and what you see may have changed."
	default:
		p.Force = d.Urls.Unlock(row.Name, row.UUID, FromView(d.Urls, r))
		p.Framed = len(d.Config.FrameAncestors) > 0
	}
}

// skewSentence says what it means for the lock that its holder's clock differs from the one here.
func skewSentence(r *locks.Row, now time.Time) string {
	ahead := r.LockedAt.Sub(now)
	switch off := r.Verdict.ClockOff; {
	case off < 0:
		return "clock skew -" + phrase.Duration(-off) +
			": the holder's clock is behind this dashboard's. The auto-unlock is shown by the clock here, which is " +
			"later than the record says"
	case off > 0:
		return "clock skew +" + phrase.Duration(off) +
			": the holder's clock is ahead of this dashboard's. The alert is shown by the clock here, which is " +
			"earlier than the record says"
	case ahead > 5*time.Second:
		return "clock skew +" + phrase.Duration(ahead) + ": the holder's clock is ahead of this dashboard's"
	}
	return ""
}

// HolderSentence says who holds the lock and what happens next. fields are those of its record, where they are known.
func HolderSentence(r *locks.Row, at phrase.Viewpoint, fields []metadata.Field) phrase.Sentence {
	var s phrase.Sentence
	if at.Stale {
		s = s.Say("As of " + phrase.TimeOfDay(at.AsOf) + " UTC: ")
	}
	if r.Token == 0 {
		s = s.Say("Not held by anybody, but keys of it are there")
	} else {
		s = s.Say("Held")
	}
	if r.Owner != "" {
		s = s.Say(" by ").Value(r.Owner)
	}
	if host := locks.HostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.Say(" on ").Value(host)
	}
	if held := at.Lasting(r.LockedAt); held != nil {
		s = s.Say(" for ").Time(held)
	}
	s = s.Say(".")
	unlock := at.Next(r.Verdict.AutoUnlockAt)
	switch {
	case unlock == nil:
		return sayAlert(s, r, at).Say(" It never unlocks by itself.")
	case unlock.Kind == "over":
		return sayAlert(s, r, at).Say(" The auto-unlock is late by ").Time(at.Age(r.Verdict.AutoUnlockAt)).Say(".")
	case unlock.Kind == "":
		return sayAlert(s, r, at).Say(" Its deadline passed, outcome unknown.")
	case r.Verdict.State != staleness.Held || !r.Verdict.AlertsAtUnlock():
		return sayAlert(s, r, at).Say(" Auto-unlock ").Time(unlock).Say(".")
	case !staleness.KeptAlive(r.Record):
		return s.Say(" Unless it is extended, alert and auto-unlock ").Time(unlock).Say(".")
	}
	s = s.Say(" Extended")
	if every := rhythm(r, fields); every > 0 {
		s = s.Say(" every " + phrase.Duration(every) + ",")
	}
	return s.Say(" last ").Time(at.Lasting(r.Alive.At)).Say(" ago.").
		Say(" If it stays silent, alert and auto-unlock ").Time(unlock).Say(".")
}

// sayAlert adds when people are alerted, or since when they are.
func sayAlert(s phrase.Sentence, r *locks.Row, at phrase.Viewpoint) phrase.Sentence {
	switch alert := r.Verdict.AlertAt; {
	case r.Verdict.State == staleness.Alerting:
		return s.Say(" Alerting for ").Time(at.Lasting(alert)).Say(".")
	case r.Verdict.State == staleness.Held && alert.After(at.AsOf):
		return s.Say(" Alert ").Time(at.Alert(alert)).Say(".")
	}
	return s
}

// fate says what the unlocker does with a record that lacks a deadline.
func (d *Pages) fate(r *locks.Row) string {
	var s strings.Builder
	switch {
	case r.AlertAt.IsZero() && r.Verdict.AlertAt.IsZero():
		s.WriteString("It never alerts as a lock, only as a malformed one. ")
	case r.AlertAt.IsZero():
		s.WriteString("The default policy alerts at " + phrase.UTC(r.Verdict.AlertAt) + ". ")
	}
	switch {
	case r.AutoUnlockAt.IsZero() && r.Verdict.AutoUnlockAt.IsZero():
		s.WriteString("It is never removed for a deadline that cannot be read: somebody must unlock it.")
	case r.AutoUnlockAt.IsZero():
		s.WriteString("The default policy removes it at " + phrase.UTC(r.Verdict.AutoUnlockAt) + ".")
	default:
		s.WriteString("It is removed at its deadline like any other.")
	}
	return s.String()
}

// ServeBacktrace answers with a backtrace as it was recorded.
func (d *Pages) ServeBacktrace(r *site.Request) (site.Answer, error) {
	v, err := d.Find(r)
	switch {
	case err != nil:
		return site.Answer{}, err
	case d.NoBacktraces(r.Caller, v.HolderOwner()) != "":
		return site.Answer{}, d.AdmitFor(r.Caller, access.Backtrace, v.HolderOwner())
	case v.Unread != "":
		return site.Answer{}, &site.Problem{Status: http.StatusServiceUnavailable, Code: "stale",
			Title:  "etcd did not answer",
			Detail: "The backtrace could not be read: " + v.Unread + ".", Retry: 5 * time.Second}
	case v.Row == nil || v.AskedHold != "" || v.Document.Backtrace == "":
		return site.Answer{}, &site.Problem{Status: http.StatusNotFound, Code: "not_found", Title: "No backtrace",
			Detail: "None is recorded for this hold."}
	}
	return site.Answer{
		Type: "text/plain; charset=utf-8", Body: []byte(v.Document.Backtrace),
		Header: map[string]string{"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'"},
	}, nil
}

// FirstFrame is the first frame of own code in a backtrace, in one line; empty when there is none.
func (d *Pages) FirstFrame(backtrace string) string {
	if trace := d.reader.Read(backtrace); trace != nil && trace.First != nil {
		return trace.First.Short()
	}
	return ""
}

// WaiterView is one who waits for the lock.
type WaiterView struct {
	Place   int
	Owner   string
	Host    string
	Purpose string
	Since   *phrase.Moment
	Timeout *phrase.Moment
}

func (d *Pages) WaiterViews(queue []metadata.Waiter, at phrase.Viewpoint) []WaiterView {
	queue = slices.Clone(queue)
	slices.SortStableFunc(queue, func(a, b metadata.Waiter) int { return int(min(max(a.Place-b.Place, -1), 1)) })
	views := make([]WaiterView, len(queue))
	for i, w := range queue {
		views[i] = WaiterView{i + 1, w.Owner, locks.HostPID(w.Hostname, w.PID), w.Purpose, at.Lasting(w.Since.Time),
			at.Alert(w.TimeoutAt.Time)}
	}
	return views
}
