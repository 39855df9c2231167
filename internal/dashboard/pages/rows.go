package pages

import (
	"fmt"
	"strconv"
	"strings"

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
	Wide     int  // columns that the second line spans
	More     bool // there is a second line
	Purpose  string
	Problem  string
	Ended    phrase.Sentence // what witnesses say of the holder
	Frame    string          // of the program's own code, where it is known
	Alive    *phrase.Moment
	Progress string
}

func (d *Pages) rowView(c access.Caller, r *locks.Row, at phrase.Viewpoint, l ListRequest) rowView {
	v := rowView{
		Look: r.Display, Version: strconv.FormatUint(r.Fingerprint, 36), Name: text.Clip(r.Name, site.MaxNameShown),
		Owner: text.Clip(r.Owner, site.MaxWordShown), Host: locks.HostPID(text.Clip(r.Hostname, site.MaxWordShown),
			r.PID),
		Held: at.Lasting(r.LockedAt), Alert: at.AlertOf(r.Record, r.Verdict),
		Unlock: at.Unlock(r.UnlockAt()), Waiters: "–", Longest: at.Lasting(r.Longest),
		Share: r.Share.Words(), Clock: phrase.ClockOff(r.Verdict.ClockOff), Extra: extras(r, at, l.cols),
	}
	if at.Stale {
		v.Version += "-stale" // the countdowns end in other words
	}
	v.Late = r.Display != locks.Held && !r.Verdict.AlertAt.IsZero() && !r.Verdict.AlertAt.After(at.AsOf)
	v.cutName(r.Share != nil)
	if r.Owner != "" {
		v.OwnerURL = l.link(d.Urls,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("owner", r.Owner)) })
	}
	if r.Hostname != "" {
		v.HostURL = l.link(d.Urls,
			func(l *ListRequest) { l.Query.Text = l.Query.With(locks.Exactly("host", r.Hostname)) })
	}
	if d.Config.Queues != nil {
		v.Waiters = phrase.Thousands(r.Waiters)
	}
	if r.Display != locks.Held || l.full || r.Death != nil {
		d.fillDetails(&v, c, r, at)
	}
	return v
}

// fillDetails adds the second line of a row: what the lock is for, what is wrong with it, and where it was taken.
func (d *Pages) fillDetails(v *rowView, c access.Caller, r *locks.Row, at phrase.Viewpoint) {
	if v.Purpose = text.Clip(r.Purpose, site.MaxLineShown); len(r.Problems) > 0 {
		v.Problem = text.Clip(r.Problems[0].String(), site.MaxLineShown)
	}
	if n := len(r.Problems); n > 1 {
		v.Problem += fmt.Sprintf(" (and %d more)", n-1)
	}
	v.Ended = witnessed(r.Record, at)
	if r.Alive != nil {
		v.Alive, v.Progress = at.Lasting(r.Alive.At), text.Clip(r.Alive.Progress, site.MaxLineShown)
	}
	if !c.MayFor(access.Backtrace, r.Owner) {
		v.Frame = ""
	} else if v.Frame = text.Clip(d.Traces.Of(r).First, site.MaxLineShown); v.Frame != "" {
		v.Version += "-at"
	}
	v.More = v.Purpose != "" || v.Problem != "" || v.Frame != "" || v.Alive != nil || v.Ended != nil
}

// cutName divides a name that can be shown as it is, so that the page can shorten it in the middle.
func (v *rowView) cutName(share bool) {
	if v.Odd = !site.IsPlain(v.Name); v.Odd {
		return
	}
	v.Head, v.Tail = site.Middle(v.Name)
	if i := strings.LastIndexByte(v.Name, '#'); share && i > 12 { // there is less room
		v.Head = v.Name[:i]
		v.Tail = v.Name[i:]
	}
}
