package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// rowView is a hold in a table, in one line.
type rowView struct {
	State    string // its look
	Version  string // changes with anything it shows
	Name     string
	Head     string // of the name, which may be cut in the middle
	Tail     string
	Odd      bool // the name has characters that need care
	URL      string
	Owner    string
	OwnerURL string
	Host     string
	HostURL  string
	About    []string // what it is for, and how far it is
	Bar      *bar     // nil where there is none
	Matter   app.RichText
	Outcome  app.RichText // if nobody acts
	Waiters  int
	Counted  bool // they are those of a row above
	Longest  *app.TimeText
}

func (p *Pages) rowView(r *app.Request, row *locks.Row, class locks.Class, c *headline.Input, l ListRequest) rowView {
	at := r.Viewpoint()
	v := rowView{
		State: string(row.StateIn(class)), Name: text.Clip(row.Name, app.MaxNameShown),
		Owner: text.Clip(row.Owner, app.MaxWordShown), Host: app.HostPID(row.Hostname, row.PID),
		About: purposeOf(row), Bar: newBar(row, at),
		Matter: p.sentenceAt(headline.StatusText(row, class), at), Outcome: p.sentenceAt(c.NextText(row), at),
		Waiters: row.Waiters, Longest: at.Elapsed(row.Longest),
		URL: p.app.URLs.Lock(row.Name, row.UUID),
	}
	v.Version = strconv.FormatUint(locks.Hash(row.Fingerprint,
		xxhash.Sum64String(fmt.Sprint(v.State, v.About, withoutTimes(v.Matter), withoutTimes(v.Outcome), at.Stale))),
		36)
	v.cutName(row.Share().Kind != "")
	if row.Owner != "" {
		v.OwnerURL = l.link(p.app.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("owner", row.Owner)) })
	}
	if row.Hostname != "" {
		v.HostURL = l.link(p.app.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("host", row.Hostname)) })
	}
	return v
}

// withoutTimes returns a text without its times, which the browser keeps up to date.
func withoutTimes(s app.RichText) string {
	return slices.DeleteFunc(slices.Clone(s), func(p app.Part) bool { return p.Time != nil }).String()
}

// purposeOf says what a hold is for and how far it is: who looks at it comes first.
func purposeOf(r *locks.Row) []string {
	var all []string
	if a := r.Acknowledged; a != nil {
		all = append(all, cmp.Or(a.By, "somebody")+" until "+app.Minute(a.Until.Time), a.Note)
	}
	all = append(all, protocol.DescribeShare(r.Share()))
	if len(r.Problems) > 0 {
		all = append(all, r.Problems[0].String())
	}
	all = append(all, r.Purpose)
	if r.Alive != nil {
		all = append(all, r.Alive.Progress)
	}
	all = append(all, clockOffText(r.ClockOff))
	for i := range all {
		all[i] = text.Clip(all[i], app.MaxLineShown)
	}
	return nonEmpty(all...)
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

type lockTable struct {
	Caption string
	Columns []column
	Parts   []tablePart
}

// tablePart is a part of a table; without a title it has no heading.
type tablePart struct {
	section
	ID   string
	Rows []rowView
}

// Len returns how many rows the table has.
func (t lockTable) Len() (n int) {
	for _, part := range t.Parts {
		n += len(part.Rows)
	}
	return n
}

// newTable returns a table of locks without sections.
func (p *Pages) newTable(r *app.Request, rows []*locks.Row, l ListRequest,
	class func(*locks.Row) locks.Class) lockTable {
	only := tablePart{}
	said := p.headlineInput(r)
	counted := map[string]bool{} // locks that several hold, whose waiters are in a row
	for _, row := range rows {
		v := p.rowView(r, row, class(row), &said, l)
		if lock := row.Share().LockName; lock != "" && row.Waiters > 0 {
			v.Counted = counted[lock]
			v.Version += strconv.FormatBool(v.Counted)
			counted[lock] = true
		}
		only.Rows = append(only.Rows, v)
	}
	return lockTable{Columns: p.columns(l), Parts: []tablePart{only}}
}

// columns returns the heads of the table; each is a link that sorts by it, and in reverse the second time.
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
	owner, alert := sorted("Owner", "owner"), sorted("Alert", "alert")
	owner.Second, alert.Second = new(sorted("host:pid", "host")), new(sorted("auto-unlock", "unlock"))
	return []column{sorted("Lock", "name"), owner, {Title: "Purpose"}, sorted("Held", "held"),
		sorted("State", locks.MostUrgent), alert, sorted("Waiting", "waiters")}
}

// Sorted returns the direction in which the list is sorted by the column: ascending, descending, or empty.
func (c column) Sorted() string {
	if c.Second == nil {
		return c.Aria
	}
	return cmp.Or(c.Aria, c.Second.Aria)
}

func (c *column) unlink() {
	c.URL, c.Aria = "", ""
	if c.Second != nil {
		c.Second.unlink()
	}
}

// bar draws a hold: from when it was taken to its auto-unlock, filled up to now. app.js moves it.
type bar struct {
	HasHeartbeats bool      // it is kept alive by heartbeats
	Parts         []barPart // from left to right
	Now           string    // what comes after is pale
	Alert         string    // where its mark is; empty: nowhere
	Began         time.Time // when it was taken; zero where the bar does not move
	Seconds       int64     // the length of the bar
}

// barPart is a part of a bar, up to the next one: held since the last heartbeat (no class), for too long (l), or when
// it should have been removed (x).
type barPart struct{ Class, From string }

// newBar is nil where it is not known when the lock was taken.
func newBar(r *locks.Row, at app.Viewpoint) *bar {
	if r.LockedAt.IsZero() {
		return nil
	}
	seconds := func(at time.Time) float64 { return max(0, at.Sub(r.LockedAt).Seconds()) }
	age, alert := seconds(at.AsOf), seconds(r.DueAlert)
	unlock := seconds(r.DueUnlock())
	whole := max(age, unlock)
	open := r.DueUnlock().IsZero()
	if open {
		whole = max(age, alert) * 1.25
	}
	b := &bar{Seconds: int64(whole) + 1}
	if !at.Stale {
		b.Began = r.LockedAt
	}
	place := func(at float64) string { return fmt.Sprintf("%.0f%%", 100*at/max(1, whole)) }
	part := func(class string, at float64) { b.Parts = append(b.Parts, barPart{class, place(at)}) }
	b.Now = place(age)
	if b.HasHeartbeats = r.AlertsAtUnlock() && staleness.KeptAlive(r.Record); b.HasHeartbeats {
		part("", seconds(r.Alive.At))
	}
	if !r.DueAlert.IsZero() && !r.AlertsAtUnlock() {
		b.Alert = place(alert)
		part("l", alert)
	}
	if !open && age > unlock {
		part("x", unlock)
	}
	return b
}
