package dashboard

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
)

// unlockPage asks a person whether the hold shall be ended by force.
type unlockPage struct {
	page
	Name      string
	Shown     string // the name in visible characters
	Look      locks.DisplayState
	Sentence  phrase.Sentence
	Purpose   string
	Alive     *phrase.Moment
	Progress  string
	Frame     string // first of own code, where the caller may see it
	Host      string
	Next      *waiterView
	Waiters   int
	Whole     *wholeLock // of which the hold is a part
	Share     string
	Recorded  bool // waiters are
	AutoSoon  *phrase.Moment
	Commands  []command
	Token     int64
	Revision  int64
	Hold      string
	Typed     string
	Reason    string
	Ticket    string
	Wrong     *complaint
	Action    string // where the form goes
	Cancel    string
	MaxReason int
	MaxTicket int
}

// unlockForm shows the confirmation page. It changes nothing.
func (d *Dashboard) unlockForm(r *request) (answer, error) {
	if err := d.mayUnlock(r.caller); err != nil {
		return answer{}, err
	}
	if err := notStale(r); err != nil {
		return answer{}, d.whenFresh(r, err)
	}
	return d.unlockAnswer(r, wish{}, "", nil)
}

// whenFresh adds to the refusal of a force unlock what can be done while the picture is stale.
func (d *Dashboard) whenFresh(r *request, err error) error {
	var old *problem
	name, failed := nameOf(r)
	if !errors.As(err, &old) || old.Code != "stale" || failed != nil {
		return err
	}
	p := *old
	p.Name = name
	p.Command = "mutexctl force-unlock " + shell(name)
	p.Link = d.urls.LockFrom(name, r.URL.Query().Get("hold"), d.urls.fromView(r))
	p.LinkText = "Back to the lock " + text.Visible(name)
	if r.Method == http.MethodGet {
		p.Retry = 5 * time.Second
		p.Again = true
	}
	return &p
}

// unlockAnswer is the confirmation page, with what was typed before and what was wrong about it.
func (d *Dashboard) unlockAnswer(r *request, typed wish, name string, wrong *complaint) (answer, error) {
	v, err := d.find(r)
	switch {
	case err != nil:
		return answer{}, err
	case v.unread != "":
		return answer{}, d.notDone(errors.New(v.unread))
	case v.Row != nil && v.Row.Misplaced:
		return answer{}, &problem{Status: http.StatusConflict, Code: "misplaced", Title: "Not here", Name: v.lock,
			Link:   d.urls.Lock(v.lock, ""),
			Detail: "This record lies at the keys of no lock. Its page says how to remove it by hand."}
	case v.Row == nil || v.asked != "":
		asked := r.URL.Query().Get("hold")
		return answer{}, d.conflict(r, wish{Name: v.lock, Hold: asked}, v.document)
	}
	if err := d.admitFor(r.caller, access.Unlock, v.Owner); err != nil {
		return answer{}, err
	}
	p := d.unlockPage(r, v)
	p.Typed, p.Reason, p.Ticket, p.Wrong = boxText(name), boxText(typed.Reason), boxText(typed.Ticket), wrong
	a := answer{Type: typeHTML, Header: map[string]string{
		// Without a referrer browsers on plain HTTP would not tell the origin of the form either.
		"Referrer-Policy": "same-origin",
	}}
	if wrong != nil {
		a.Status = http.StatusUnprocessableEntity
	}
	a.Body, err = d.render("unlock", p)
	return a, err
}

func (d *Dashboard) unlockPage(r *request, v *lockView) unlockPage {
	row := v.Row
	p := unlockPage{page: d.page(r, "force unlock "+row.Name), Name: row.Name, Shown: text.Visible(row.Name), Look: row.Display,
		Purpose: row.Purpose,
		Token:   row.Token, Revision: row.Revision, Hold: row.UUID, Host: locks.HostPID(row.Hostname, row.PID),
		MaxReason: maxReason, MaxTicket: maxTicket}
	p.Here = "list"
	p.Icon = icon{Look: row.Display}
	p.Sentence = holderSentence(row, p.Viewpoint, v.document.Fields)
	p.Action = d.urls.Unlock(row.Name, row.UUID, v.view)
	p.Cancel = d.urls.LockFrom(row.Name, row.UUID, v.view)
	if row.Alive != nil {
		p.Alive, p.Progress = p.Age(row.Alive.At), row.Alive.Progress
	}
	if r.caller.MayFor(access.Backtrace, row.Owner) {
		if trace := d.reader.Read(v.document.Backtrace); trace != nil && trace.First != nil {
			p.Frame = trace.First.Short()
		}
	}
	if unlock := p.Viewpoint.Next(row.Verdict.AutoUnlockAt); unlock != nil && unlock.Kind == "next" {
		p.AutoSoon = unlock
	}
	p.Recorded = d.config.Waiters != nil
	p.Share = row.Share.Words()
	p.Whole = d.whole(r, row)
	if queue := d.waiterViews(v.waiters, p.Viewpoint); len(queue) > 0 {
		p.Next = &queue[0]
		p.Waiters = len(queue)
	}
	p.Commands = whereabouts(row)
	return p
}

// unlockPost does what the confirmation page asked for. Whether the caller may is checked already.
func (d *Dashboard) unlockPost(r *request) (answer, error) {
	w, typed, err := d.readForm(r)
	if err == nil {
		err = d.admitUnlock(r)
	}
	if err == nil && typed != w.Name && typed != text.Visible(w.Name) {
		err = &complaint{"typed", "That is not the name of this lock."}
	}
	if err == nil {
		err = w.check()
	}
	if err != nil {
		d.record(r, w, newAction(r, w, ""), err)
		var wrong *complaint
		if errors.As(err, &wrong) {
			return d.unlockAnswer(r, w, typed, wrong)
		}
		return answer{}, d.whenFresh(r, err)
	}
	action, err := d.forceUnlock(r, w)
	if d.record(r, w, action, err); err != nil {
		return answer{}, err
	}
	return answer{Status: http.StatusSeeOther, Type: "text/plain; charset=utf-8", Body: []byte("Done.\n"),
		Header: map[string]string{"Location": d.urls.LockFrom(w.Name, w.historyID(), d.urls.fromView(r))}}, nil
}

// readForm reads what the confirmation page sends. The lock and the hold are in the address, as they are for every
// other page.
func (d *Dashboard) readForm(r *request) (w wish, typed string, err error) {
	if w.Name, err = nameOf(r); err != nil {
		return w, "", err
	}
	w.Hold = r.URL.Query().Get("hold")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return w, "", err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return w, "", badBody("The form can not be read.")
	}
	w.Reason = form.Get("reason")
	w.Ticket = form.Get("ticket")
	token, err1 := strconv.ParseInt(form.Get("token"), 10, 64)
	revision, err2 := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err1 != nil || err2 != nil || form.Get("hold") != w.Hold {
		return w, "", badBody("The form does not say which hold it is about.")
	}
	w.Token = token
	w.Revision = revision
	return w, form.Get("typed"), nil
}
