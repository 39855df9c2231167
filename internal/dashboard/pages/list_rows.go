package pages

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type rowView struct {
	State        locks.DisplayState
	Version      string // changes with anything it shows
	Name         string
	Head         string // of the name, which may be cut in the middle
	Tail         string
	Odd          bool // the name has characters that need care
	URL          string
	Owner        string
	OwnerURL     string
	Host         string
	HostURL      string
	Hold         holdView
	Waiters      string
	Longest      *app.TimeText
	Share        string // what the holder has of a lock that several can hold
	Clock        string // the holder's clock, where it is off
	More         bool   // there is a second line
	Purpose      string
	Problem      string
	Ended        app.RichText // what witnesses say of the holder
	Suspected    app.RichText // what they only suspect
	Acknowledged *ackNote     // who looks at the lock; nil = nobody
	Frame        string       // of the program's own code, where it is known
	Alive        *app.TimeText
	Progress     string
}

func (p *Pages) rowView(c access.Caller, r *locks.Row, at app.Viewpoint, l ListRequest) rowView {
	v := rowView{
		State: r.Display, Version: strconv.FormatUint(r.Fingerprint, 36), Name: text.Clip(r.Name, app.MaxNameShown),
		Owner: text.Clip(r.Owner, app.MaxWordShown), Host: app.HostPID(r.Hostname, r.PID),
		Hold: newHoldView(r, at), Waiters: "–", Longest: at.Lasting(r.Longest),
		Share: protocol.DescribeShare(r.Share()), Clock: clockOff(r.Verdict().ClockOff),
	}
	if at.Stale {
		v.Version += "-stale" // the countdowns end in other words
	}
	v.cutName(r.Share().Kind != "")
	if r.Owner != "" {
		v.OwnerURL = l.link(p.app.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("owner", r.Owner)) })
	}
	if r.Hostname != "" {
		v.HostURL = l.link(p.app.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("host", r.Hostname)) })
	}
	v.Waiters = text.Thousands(r.Waiters)
	if r.Display != locks.Held || l.full || r.Death != nil || r.Suspicion != nil || r.Acknowledged != nil {
		p.fillDetails(&v, c, r, at)
	}
	return v
}

// fillDetails adds the second line of a row: what the lock is for, what is wrong with it, and where it was taken.
func (p *Pages) fillDetails(v *rowView, c access.Caller, r *locks.Row, at app.Viewpoint) {
	v.Purpose = text.Clip(r.Purpose, app.MaxLineShown)
	if len(r.Problems) > 0 {
		v.Problem = text.Clip(r.Problems[0].String(), app.MaxLineShown)
	}
	if n := len(r.Problems); n > 1 {
		v.Problem += fmt.Sprintf(" (and %d more)", n-1)
	}
	v.Ended = deathText(r.Record, at)
	v.Suspected = suspicionText(r.Record, at)
	v.Acknowledged = newAckNote(r.Acknowledged)
	if r.Alive != nil {
		v.Alive = at.Lasting(r.Alive.At)
		v.Progress = text.Clip(r.Alive.Progress, app.MaxLineShown)
	}
	if c.MayFor(access.Backtrace, r.Owner) {
		v.Frame = text.Clip(p.traces.Of(r).First, app.MaxLineShown)
	}
	if v.Frame != "" {
		v.Version += "-at"
	}
	v.More = v.Purpose != "" || v.Problem != "" || v.Frame != "" || v.Alive != nil || v.Ended != nil ||
		v.Suspected != nil || v.Acknowledged != nil
}

// cutName divides a name that can be shown as it is, so that the page can shorten it in the middle.
func (v *rowView) cutName(share bool) {
	if v.Odd = !app.IsPlainASCII(v.Name); v.Odd {
		return
	}
	v.Head, v.Tail = splitBeforeEnd(v.Name)
	if i := strings.LastIndexByte(v.Name, '#'); share && i > 12 { // there is less room
		v.Head = v.Name[:i]
		v.Tail = v.Name[i:]
	}
}

// splitBeforeEnd cuts a text in two so that the page can shorten it in the middle: what differs is often at the end.
func splitBeforeEnd(s string) (head, tail string) {
	const keep, most = 14, 30
	if len(s) <= most {
		return s, ""
	}
	i := len(s) - keep
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return s[:i], s[i:]
}

type table struct {
	Caption string
	Columns []column
	Rows    []rowView
}

func (p *Pages) newTable(r *app.Request, rows []*locks.Row, l ListRequest) table {
	t := table{Columns: p.columns(l), Rows: make([]rowView, len(rows))}
	view := l.view(p.app.URLs)
	at := r.Viewpoint()
	for i, row := range rows {
		t.Rows[i] = p.rowView(r.Caller, row, at, l)
		t.Rows[i].URL = p.app.URLs.LockFrom(row.Name, row.UUID, view)
	}
	return t
}

// columns are the heads of the table; each is a link that sorts by it, and in reverse the second time. A hold is one
// column, which can be sorted by each of its three times.
func (p *Pages) columns(l ListRequest) []column {
	sorted := func(title, by string) column {
		o := locks.Order{By: by}
		aria := ""
		if l.Order.By == by {
			aria, o.Reverse = "ascending", !l.Order.Reverse
			if l.Order.Reverse {
				aria = "descending"
			}
		}
		return column{Title: title, URL: l.link(p.app.URLs, func(l *ListRequest) { l.Order = o }), Aria: aria}
	}
	hold := column{Title: "Hold", Of: []column{sorted("Held", "held"), sorted("Alert", "alert"),
		sorted("Auto-unlock", "unlock")}}
	for _, time := range hold.Of {
		hold.Aria = cmp.Or(hold.Aria, time.Aria)
	}
	return []column{sorted("State", "urgency"), sorted("Lock", "name"), sorted("Owner", "owner"),
		sorted("Host:pid", "host"), hold, sorted("Waiting", "waiters")}
}

// unlink makes the head of a column plain text.
func (c *column) unlink() {
	c.URL, c.Aria = "", ""
	for i := range c.Of {
		c.Of[i].unlink()
	}
}

// holdView is how far a hold is: as a bar, and in words.
type holdView struct {
	Bar    *bar          // nil where there is none
	Held   *app.TimeText // nil: unknown
	Alert  *app.TimeText // nil: never
	Late   bool          // the alert is past
	Unlock *app.TimeText // nil: never
}

func newHoldView(r *locks.Row, at app.Viewpoint) holdView {
	alert := r.Verdict().AlertAt
	return holdView{Bar: newBar(r, at.AsOf), Held: at.Lasting(r.LockedAt), Alert: at.AlertOf(r.Record, r.Verdict()),
		Late:   r.Display != locks.Held && !alert.IsZero() && !alert.After(at.AsOf),
		Unlock: at.Unlock(r.UnlockAt())}
}

// bar draws a hold: from when it was taken to its auto-unlock, filled up to now. app.js moves it as it
// moves the words.
type bar struct {
	HasHeartbeats bool      // it is kept alive by heartbeats
	Parts         []stretch // from left to right
	Now           string    // what comes after is pale
	Alert         string    // where its mark is; empty: nowhere
	Seconds       int64     // the length of the bar, where it does not end at the auto-unlock
}

// stretch is a part of a bar, up to the next one: held since the last heartbeat (no class), for too long (l), or when
// it should have been removed (x).
type stretch struct{ Class, From string }

// newBar is nil where it is not known when the lock was taken.
func newBar(r *locks.Row, now time.Time) *bar {
	if r.LockedAt.IsZero() {
		return nil
	}
	judged := r.Verdict()
	seconds := func(at time.Time) float64 { return max(0, at.Sub(r.LockedAt).Seconds()) }
	age, alert := seconds(now), seconds(judged.AlertAt)
	unlock := seconds(r.UnlockAt())
	whole := unlock
	b := &bar{}
	open := r.UnlockAt().IsZero()
	if open {
		whole = max(age, alert) * 1.25
	}
	if open || age > whole {
		whole = max(age, whole)
		b.Seconds = int64(whole) + 1
	}
	place := func(at float64) string { return fmt.Sprintf("%.0f%%", 100*at/max(1, whole)) }
	part := func(class string, at float64) { b.Parts = append(b.Parts, stretch{class, place(at)}) }
	b.Now = place(age)
	if b.HasHeartbeats = judged.AlertsAtUnlock() && staleness.KeptAlive(r.Record); b.HasHeartbeats {
		part("", seconds(r.Alive.At))
	}
	if !judged.AlertAt.IsZero() && !judged.AlertsAtUnlock() {
		b.Alert = place(alert)
		part("l", alert)
	}
	if !open && age > unlock {
		part("x", unlock)
	}
	return b
}
