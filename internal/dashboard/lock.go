package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// readTimeout bounds the one read of etcd behind a lock's page.
const readTimeout = 2 * time.Second

// lockView is one lock as it was found: the model of its page and of its JSON.
type lockView struct {
	*row                       // the current hold; nil when nobody holds the lock
	document metadata.Document // empty when etcd could not be read
	revision int64             // of etcd at the read
	unread   string            // why etcd could not be read; empty when it could
	waiters  []metadata.Waiter // in order
	asked    string            // the hold that was asked for, when it is not the current one
	ending   *metadata.Ending  // of the asked hold, where it is recorded
}

// find reads a lock: from etcd, or from the picture while etcd does not answer.
func (d *Dashboard) find(r *http.Request) (*lockView, error) {
	s, err := d.loaded()
	if err != nil {
		return nil, err
	}
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	v := &lockView{row: s.find(name)}
	if d.config.Waiters != nil {
		v.waiters = d.config.Waiters(name)
	}
	d.read(ctx, v, name)
	if hold := r.URL.Query().Get("hold"); hold != "" && (v.row == nil || v.UUID != hold) {
		v.asked = hold
		v.ending = d.ending(ctx, name, hold)
	}
	if v.row == nil && v.ending == nil {
		return nil, notHeld(name, v)
	}
	return v, nil
}

// read takes the lock from etcd, which knows more than the picture and knows it earlier.
func (d *Dashboard) read(ctx context.Context, v *lockView, name string) {
	document, revision, err := d.config.Document(ctx, name)
	if err != nil {
		v.unread = d.config.Explain(err)
		return
	}
	v.document, v.revision = document, revision
	if len(document.Fields) == 0 {
		v.row = nil
		return
	}
	record := &document.Record
	moment := staleness.Moment{Wall: d.config.Now(), Mono: d.config.Clock()}
	if record.Seen = (metadata.Seen{First: moment.Mono, Changed: moment.Mono}); v.row != nil && v.row.Token == record.Token {
		record.Seen = v.row.Seen
	}
	v.row = newRow(record, d.config.Policy, moment, v.waiters, v.row)
}

func (d *Dashboard) ending(ctx context.Context, name, hold string) *metadata.Ending {
	if d.config.Ending == nil {
		return nil
	}
	ending, err := d.config.Ending(ctx, hold)
	if err != nil {
		d.config.Log.Warn().Err(err).Str("uuid", plain(hold)).Msg("the ending of a hold could not be read")
		return nil
	}
	if ending != nil && ending.Lock != name {
		return nil
	}
	return ending
}

func notHeld(name string, v *lockView) error {
	p := &problem{Status: http.StatusNotFound, Code: "not_found", Title: "Not held", Name: name,
		Detail: "Nobody holds the lock " + plain(name) + " now."}
	if v.asked != "" {
		p.Detail += " This hold of it has ended, and how is not recorded: its holder released it, or the record is too old."
	}
	if v.unread != "" {
		p.Detail = "The lock " + plain(name) + " is not among the last known ones, and etcd could not be asked: " + v.unread + "."
	}
	return p
}

// lockPage is the page of one lock.
type lockPage struct {
	page
	Name     string
	Look     look
	Sentence sentence
	Purpose  string
	Progress string
	Timeline *timeline
	Facts    []fact
	Times    []timeFact
	Problems []metadata.Problem
	Fate     string // what the unlocker does with a malformed record
	Skew     string // the holder's clock is ahead by this
	Trace    *trace
	Hidden   string // why there is no backtrace
	RawTrace string
	Waiters  []waiterView
	Recorded bool // waiters are
	Commands []command
	Fields   []fieldView
	Unread   string // why etcd could not be read
	Ended    *endedView
	Free     bool   // nobody holds the lock any more
	Current  string // link to the current hold when another was asked for
	Back     string
	Unlock   string // how to end the hold on the command line
}

func (d *Dashboard) lock(r *http.Request) (answer, error) {
	v, err := d.find(r)
	if err != nil {
		return answer{}, err
	}
	body, err := d.render("lock", d.lockPage(r, v))
	return answer{Type: typeHTML, Body: body}, err
}

func (d *Dashboard) lockPage(r *http.Request, v *lockView) lockPage {
	if v.ending != nil {
		return d.endedPage(r, v)
	}
	row := v.row
	p := lockPage{page: d.page(r, row.Name), Name: row.Name, Look: row.look, Purpose: row.Purpose, Problems: row.Problems}
	p.Here, p.JSON, p.Back = "list", d.urls.LockAPI(row.Name), d.urls.To("")
	p.Icon = icon{Look: row.look}
	p.Unread, p.Recorded = v.unread, d.config.Waiters != nil
	p.Sentence = holderSentence(row, p.lens)
	if v.asked != "" {
		p.Current = d.urls.Lock(row.Name, row.UUID)
	}
	if row.Alive != nil {
		p.Progress = row.Alive.Progress
	}
	p.Timeline = newTimeline(row, p.lens)
	p.Facts, p.Times = facts(row, v), times(row, p.lens)
	if row.Malformed() {
		p.Fate = d.fate(row)
	}
	if ahead := row.LockedAt.Sub(p.now); ahead > 5*time.Second {
		p.Skew = "clock skew +" + short(ahead)
	}
	switch {
	case d.config.HideBacktraces:
		p.Hidden = "Backtraces are switched off on this dashboard."
	case v.unread != "":
		if p.Trace = parseTrace(d.traces.of(row).text); p.Trace == nil {
			p.Hidden = "Not read: etcd did not answer (" + v.unread + ")."
		}
	default:
		p.Trace = parseTrace(v.document.Backtrace)
		p.RawTrace = d.urls.Backtrace(row.Name, row.UUID)
	}
	p.Waiters = d.waiterViews(v.waiters, p.lens)
	p.Commands = d.commands(row)
	p.Unlock = "mutexctl force-unlock " + shell(row.Name)
	p.Fields = d.fieldViews(v.document)
	return p
}

// holderSentence says who holds the lock and what happens next.
func holderSentence(r *row, at lens) sentence {
	s := say("Held")
	if r.Token == 0 {
		s = say("Not held by anybody, but keys of it are there")
	}
	if r.Owner != "" {
		s = s.say(" by ").value(r.Owner)
	}
	if host := hostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.say(" on ").value(host)
	}
	if held := at.age(r.LockedAt); held != nil {
		s = s.say(" for ").time(held)
	}
	s = s.say(".")
	if alert := r.verdict.AlertAt; r.verdict.State == staleness.Alerting {
		s = s.say(" Alerting for ").time(at.age(alert)).say(".")
	} else if alert.After(at.now) && r.verdict.State == staleness.Held {
		s = s.say(" Alert ").time(at.alert(alert)).say(".")
	}
	switch unlock := at.unlock(r.verdict.AutoUnlockAt); {
	case unlock == nil:
		return s.say(" It never unlocks by itself.")
	case unlock.Kind == "over":
		return s.say(" The auto-unlock is late by ").time(at.age(r.verdict.AutoUnlockAt)).say(".")
	case unlock.Kind == "":
		return s.say(" Its deadline passed, outcome unknown.")
	default:
		return s.say(" Auto-unlock in ").time(unlock).say(".")
	}
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
	case d.config.HideBacktraces:
		return answer{}, &problem{Status: http.StatusForbidden, Code: "forbidden", Title: "No backtraces here",
			Detail: "Backtraces are switched off on this dashboard."}
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

// endedView is how a hold ended.
type endedView struct {
	Word  string // released, auto_unlocked, forced, for people
	When  *moment
	By    string
	Why   string
	Owner string
	Host  string
	Held  string
	UUID  string
}

func (d *Dashboard) endedPage(r *http.Request, v *lockView) lockPage {
	e := v.ending
	p := lockPage{page: d.page(r, e.Lock), Name: e.Lock, Look: "released", Purpose: e.Purpose, Free: v.row == nil}
	p.Here, p.JSON, p.Back = "list", d.urls.LockAPI(e.Lock), d.urls.To("")
	words := map[string]string{metadata.EndedAutoUnlocked: "auto-unlocked", metadata.EndedForced: "force-unlocked", metadata.EndedReleased: "released"}
	p.Ended = &endedView{Word: words[e.Ended], When: p.age(e.EndedAt.Time), By: e.By, Why: e.Why, Owner: e.Owner,
		Host: hostPID(e.Hostname, e.PID), UUID: e.UUID}
	if !e.LockedAt.IsZero() && !e.EndedAt.IsZero() {
		p.Ended.Held = short(e.EndedAt.Sub(e.LockedAt.Time))
	}
	if p.Ended.Word == "" {
		p.Ended.Word = "ended"
	}
	if v.row != nil {
		p.Current = d.urls.Lock(v.Name, v.UUID)
		p.Sentence = holderSentence(v.row, p.lens)
	}
	for _, f := range []fact{{"hold", e.UUID}, {"fencing token", number64(e.Token)}, {"owner", e.Owner}, {"host", e.Hostname}, {"last progress", e.Progress}} {
		if f.Value != "" {
			p.Facts = append(p.Facts, f)
		}
	}
	for _, t := range []struct {
		label string
		at    time.Time
	}{{"locked", e.LockedAt.Time}, {"alert", e.AlertAt.Time}, {"last alive", e.AliveAt.Time}, {"auto-unlock", e.AutoUnlockAt.Time}, {"ended", e.EndedAt.Time}} {
		if m := p.age(t.at); m != nil {
			m.Text, m.Kind = m.Text+" ago", ""
			if t.at.After(p.now) {
				m.Text = "in " + short(t.at.Sub(p.now))
			}
			p.Times = append(p.Times, timeFact{t.label, m, ""})
		}
	}
	return p
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
		views[i] = waiterView{i + 1, w.Owner, hostPID(w.Hostname, w.PID), w.Purpose, at.age(w.Since.Time), at.alert(w.TimeoutAt.Time)}
	}
	return views
}
