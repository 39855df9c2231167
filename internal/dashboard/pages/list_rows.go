package pages

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// rowView is one lock in the list.
type rowView struct {
	Look     locks.DisplayState
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
	Held     *phrase.Moment
	Alert    *phrase.Moment
	Late     bool // the alert is past
	Unlock   *phrase.Moment
	Waiters  string
	Longest  *phrase.Moment
	Share    string // what the holder has of a lock that several can hold
	Clock    string // the holder's clock, where it is off
	Extra    []extra
	Away     bool // its cluster is, while others are not
	Wide     int  // columns that the second line spans
	More     bool // there is a second line
	Purpose  string
	Problem  string
	Ended    phrase.Sentence // what witnesses say of the holder
	Doubt    phrase.Sentence // what they only suspect
	Looked   *lookedView     // who looks at the lock; nil = nobody
	Frame    string          // of the program's own code, where it is known
	Alive    *phrase.Moment
	Progress string
}

func (p *Pages) rowView(c access.Caller, r *locks.Row, at phrase.Viewpoint, l ListRequest) rowView {
	v := rowView{
		Look: r.Display, Version: strconv.FormatUint(r.Fingerprint, 36), Name: text.Clip(r.Name, site.MaxNameShown),
		Owner: text.Clip(r.Owner, site.MaxWordShown), Host: site.HostPID(r.Hostname, r.PID),
		Held: at.Lasting(r.LockedAt), Alert: at.AlertOf(r.Record, r.Verdict()),
		Unlock: at.Unlock(r.UnlockAt()), Waiters: "–", Longest: at.Lasting(r.Longest),
		Share: r.Share.Words(), Clock: clockOff(r.Verdict().ClockOff), Extra: extras(r, at, l.cols),
	}
	if at.Stale {
		v.Version += "-stale" // the countdowns end in other words
	}
	v.Late = r.Display != locks.Held && !r.Verdict().AlertAt.IsZero() && !r.Verdict().AlertAt.After(at.AsOf)
	v.cutName(r.Share != nil)
	if r.Owner != "" {
		v.OwnerURL = l.link(p.site.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("owner", r.Owner)) })
	}
	if r.Hostname != "" {
		v.HostURL = l.link(p.site.URLs,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("host", r.Hostname)) })
	}
	v.Waiters = phrase.Thousands(r.Waiters)
	if r.Display != locks.Held || l.full || r.Death != nil || r.Suspicion != nil || r.Looked != nil {
		p.fillDetails(&v, c, r, at)
	}
	return v
}

// fillDetails adds the second line of a row: what the lock is for, what is wrong with it, and where it was taken.
func (p *Pages) fillDetails(v *rowView, c access.Caller, r *locks.Row, at phrase.Viewpoint) {
	v.Purpose = text.Clip(r.Purpose, site.MaxLineShown)
	if len(r.Problems) > 0 {
		v.Problem = text.Clip(r.Problems[0].String(), site.MaxLineShown)
	}
	if n := len(r.Problems); n > 1 {
		v.Problem += fmt.Sprintf(" (and %d more)", n-1)
	}
	v.Ended = witnessed(r.Record, at)
	v.Doubt = suspected(r.Record, at)
	v.Looked = newLookedView(r.Looked)
	if r.Alive != nil {
		v.Alive = at.Lasting(r.Alive.At)
		v.Progress = text.Clip(r.Alive.Progress, site.MaxLineShown)
	}
	if c.MayFor(access.Backtrace, r.Owner) {
		v.Frame = text.Clip(p.traces.Of(r).First, site.MaxLineShown)
	}
	if v.Frame != "" {
		v.Version += "-at"
	}
	v.More = v.Purpose != "" || v.Problem != "" || v.Frame != "" || v.Alive != nil || v.Ended != nil ||
		v.Doubt != nil || v.Looked != nil
}

// cutName divides a name that can be shown as it is, so that the page can shorten it in the middle.
func (v *rowView) cutName(share bool) {
	if v.Odd = !site.IsPlain(v.Name); v.Odd {
		return
	}
	v.Head, v.Tail = middle(v.Name)
	if i := strings.LastIndexByte(v.Name, '#'); share && i > 12 { // there is less room
		v.Head = v.Name[:i]
		v.Tail = v.Name[i:]
	}
}

// middle cuts a text in two so that the page can shorten it in the middle: what differs is often at the end.
func middle(s string) (head, tail string) {
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
