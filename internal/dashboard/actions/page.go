package actions

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type unlockPage struct {
	holdForm
	Host  string
	Dead  bool
	Queue pages.QueueView
	Delay string           // the lock delay that follows; empty for none
	Steps []pages.StepView // that come before
}

// holdForm is the form for an action on a hold, and what the person sees of the hold.
type holdForm struct {
	app.Page
	Name  string
	State metadata.State
	Head  pages.Head // as on the page of the lock, which keeps it current
	confirmForm
}

// holdForm fills the form. The title of its tab ends with the name of the lock.
func (o *Operation) holdForm(r *app.Request, lock *app.Lock, title string, typed Request, name string,
	wrong *FieldError) holdForm {
	row := lock.Row
	f := holdForm{Page: o.app.Page(r, title+" "+row.Name), Name: row.Name,
		State: row.StateIn(r.Snapshot().Class(row)),
		confirmForm: confirmForm{Shown: text.Visible(row.Name), Token: row.Token, Revision: row.Revision,
			Hold: row.UUID, Action: o.app.URLs.Action(o.Page(), row.Name, row.UUID),
			Cancel: o.app.URLs.Lock(row.Name, row.UUID)}}
	o.fill(&f.confirmForm, typed, name, wrong)
	f.NavEntry = "list"
	f.AutoRefresh = true
	f.Icon = f.State
	past, _ := o.app.History.Endings(r.Context(), r.Now, row.Name)
	f.Head = o.pages.NewHead(r, lock, past)
	return f
}

// confirmForm is the form that asks for a reason, and for the name of a lock that another gets then.
type confirmForm struct {
	Ask       string // what to type, if it is not the name of a lock
	Shown     string // the name in visible characters, or the number of holds
	Token     int64
	Revision  int64
	Hold      string
	Typed     string
	Reason    string
	Ticket    string
	Wrong     *FieldError
	Action    string // where the form goes
	Cancel    string
	Do        string // the button
	Kept      string // where the reason is kept
	MinReason int
	MaxReason int
	MaxTicket int
}

// fill keeps what was typed before, and says what was wrong with it.
func (o *Operation) fill(f *confirmForm, typed Request, name string, wrong *FieldError) {
	f.MinReason = o.MinReasonLength
	f.Typed = app.BoxText(name)
	f.Reason = app.BoxText(oneLine(typed.Reason))
	f.Ticket = app.BoxText(oneLine(typed.Ticket))
	f.Wrong = wrong
	f.MaxReason = app.MaxReason
	f.MaxTicket = app.MaxTicket
}

// ServeForm shows the confirmation page. It changes nothing.
func (o *Operation) ServeForm(r *app.Request) (app.Answer, error) {
	if err := o.Authorize(r.Caller); err != nil {
		return app.Answer{}, err
	}
	if err := notStale(r); err != nil {
		return app.Answer{}, o.withCommand(r, Request{}, err)
	}
	a, err := o.show(r, Request{}, "", nil)
	if err != nil {
		return a, o.withCommand(r, Request{}, err)
	}
	return a, nil
}

// withCommand adds to a refusal because of a silent etcd the command that does the same from elsewhere.
func (o *Operation) withCommand(r *app.Request, typed Request, err error) error {
	var old *app.HTTPError
	name, failed := app.NameOf(r)
	typed.Name = name
	typed.Hold = r.URL.Query().Get("hold")
	if !errors.As(err, &old) || old.Code != "stale" && old.Code != "etcd" || failed != nil {
		return err
	}
	p := *old
	p.Name = name
	hold, known := o.knownHold(r, name)
	if typed.Hold = cmp.Or(typed.Hold, hold); typed.Hold != "" || known && o.FreesLock { // others need a uuid
		p.Command = o.command(typed)
	}
	p.Link = o.app.URLs.Lock(name, typed.Hold)
	p.LinkText = "Back to the lock " + text.Visible(name)
	if r.Method == http.MethodGet {
		p.Retry = 5 * time.Second
		p.Reloads = true
	}
	return &p
}

// knownHold returns the hold of the lock, or of its lock delay, in the snapshot; the hold may have no UUID.
func (o *Operation) knownHold(r *app.Request, name string) (hold string, known bool) {
	delay, row := delayOf(r.Snapshot(), name), r.Snapshot().Find(name)
	switch isDelay := o.verb == protocol.VerbEndDelay; {
	case isDelay && delay != nil:
		return delay.UUID, true
	case !isDelay && row != nil:
		return row.UUID, true
	}
	return "", false
}

// showHold returns the form, with what was typed before and what is wrong with it.
func (o *Operation) showHold(r *app.Request, typed Request, name string, wrong *FieldError) (app.Answer, error) {
	if o.isBulk(r) {
		return o.bulkForm(r, typed, name, wrong)
	}
	lock, err := o.app.ReadHeldLock(r)
	switch {
	case err != nil:
		return app.Answer{}, err
	case lock.ReadError != "":
		return app.Answer{}, &app.HTTPError{Status: http.StatusServiceUnavailable, Code: "etcd", Title: "Not now",
			Detail: "The form cannot be shown: " + lock.ReadError + ". Nothing was done.", Retry: 5 * time.Second}
	case lock.Row != nil && lock.Row.Misplaced:
		return app.Answer{}, &app.HTTPError{Status: http.StatusConflict, Code: "misplaced", Title: "Not here",
			Name: lock.Name, Link: o.app.URLs.Lock(lock.Name, ""),
			Detail: "This record is at keys that belong to no lock. Its page says how to remove it by hand."}
	case lock.Row == nil || lock.RequestedHold != "":
		wanted := r.URL.Query().Get("hold")
		return app.Answer{}, o.conflict(r, Request{Name: lock.Name, Hold: wanted}, lock.FullRecord)
	}
	if err := o.app.AuthorizeFor(r.Caller, o.permission(), lock.Row.Owner); err != nil {
		return app.Answer{}, err
	}
	var a app.Answer
	if o.FreesLock {
		a, err = o.unlockForm(r, lock, typed, name, wrong)
	} else {
		a, err = o.markForm(r, lock, typed, wrong)
	}
	return asForm(a, wrong), err
}

func asForm(a app.Answer, wrong *FieldError) app.Answer {
	// Without a referrer browsers on plain HTTP would not tell the origin of the form either.
	a.Header = map[string]string{"Referrer-Policy": "same-origin"}
	switch {
	case wrong == nil:
	case wrong.Field == "":
		a.Status = http.StatusConflict
	default:
		a.Status = http.StatusUnprocessableEntity
	}
	return a
}

func (o *Operation) unlockForm(r *app.Request, lock *app.Lock, typed Request, name string,
	wrong *FieldError) (app.Answer, error) {
	row := lock.Row
	v := unlockPage{holdForm: o.holdForm(r, lock, "force unlock", typed, name, wrong),
		Host: locks.HostPID(row.Hostname, row.PID), Dead: row.ProvenDead()}
	v.Do = "Force unlock " + text.Visible(row.Name)
	v.Kept = "the history"
	if delay := row.Record.EffectiveLockDelay(r.Snapshot().Combined.Policy.LockDelay); delay > 0 {
		v.Delay = text.Duration(delay)
	}
	v.Queue = pages.NewQueueView(lock.Waiters, 1, v.Viewpoint)
	v.Steps = slices.DeleteFunc(o.pages.StepViews(r, lock, row, &v.Head.Said.Headline), pages.StepView.IsLast)
	return o.app.Render("unlock", v)
}

// ServePost does what the confirmation page asked for. Whether the caller may is checked already.
func (o *Operation) ServePost(r *app.Request) (app.Answer, error) {
	if o.isBulk(r) {
		return o.postBulk(r)
	}
	wanted, name, err := o.readForm(r)
	typed := wanted
	if err == nil {
		err = o.checkCaller(r)
	}
	if err == nil && o.FreesLock && name != wanted.Name && name != text.Visible(wanted.Name) {
		err = &FieldError{"typed", "That is not the name of this lock."}
	}
	if _, err = o.carryOut(r, &wanted, err); err != nil {
		return o.showAgain(r, typed, name, err)
	}
	then := o.after(r, wanted)
	return app.Answer{Status: http.StatusSeeOther, Type: "text/plain; charset=utf-8", Body: []byte("Done.\n"),
		Header: map[string]string{"Location": then}}, nil
}

// showAgain answers a refused request with what was typed: in the form again, if that helps.
func (o *Operation) showAgain(r *app.Request, typed Request, name string, err error) (a app.Answer, _ error) {
	var wrong *FieldError
	if errors.As(err, &wrong) {
		if a, err = o.show(r, typed, name, wrong); err == nil {
			return a, nil
		}
	}
	err = o.withCommand(r, typed, err)
	var p *app.HTTPError
	if !errors.As(err, &p) {
		return a, err
	}
	same := *p
	if typed.Name != "" {
		same.Link = cmp.Or(p.Link, o.after(r, typed))
	}
	addFormValues(&same, typed)
	return a, &same
}

func addFormValues(p *app.HTTPError, typed Request) {
	p.Name = cmp.Or(typed.Name, p.Name)
	for _, s := range []string{oneLine(typed.Reason), oneLine(typed.Ticket)} {
		if s != "" {
			p.FormValues = append(p.FormValues, app.BoxText(s))
		}
	}
}

func (o *Operation) afterHold(r *app.Request, wanted Request) string {
	return o.app.URLs.Lock(wanted.Name, wanted.historyID())
}

// readForm reads what the confirmation page sends. The lock and the hold are in the address, as they are for every
// other page.
func (o *Operation) readForm(r *app.Request) (wanted Request, typed string, err error) {
	if wanted.Name, err = app.NameOf(r); err != nil {
		return wanted, "", err
	}
	wanted.Hold = r.URL.Query().Get("hold")
	form, err := readValues(r)
	if err != nil {
		return wanted, "", err
	}
	wanted.Reason = form.Get("reason")
	wanted.Ticket = form.Get("ticket")
	wanted.Duration = form.Get("more")
	if own := strings.TrimSpace(form.Get("own")); own != "" && wanted.Duration != otherTime && own != wanted.Duration {
		wanted.OtherDuration, wanted.Duration = wanted.Duration, own
	} else if wanted.Duration == otherTime {
		wanted.Duration = cmp.Or(own, otherTime)
	}
	if seen := form.Get("withdraw"); seen != "" && o.Undo != "" {
		wanted.Undo = true
		if wanted.SeenMark, err = strconv.ParseInt(seen, 10, 64); err != nil {
			return wanted, "", app.BadBody("The form does not say which acknowledgement is withdrawn.")
		}
	}
	token, err1 := strconv.ParseInt(form.Get("token"), 10, 64)
	revision, err2 := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err1 != nil || err2 != nil || form.Get("hold") != wanted.Hold {
		return wanted, "", app.BadBody("The form does not say which hold it is about.")
	}
	wanted.Token = token
	wanted.Revision = revision
	wanted.SeenRevision = revision
	return wanted, form.Get("typed"), nil
}

func readValues(r *app.Request) (url.Values, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, app.BadBody("The form could not be read.")
	}
	return form, nil
}

// defaultDuration is the duration that forms suggest.
const defaultDuration = 30 * time.Minute

// command returns the command line that does what was typed into the form, to the hold that was seen.
func (o *Operation) command(wanted Request) string {
	flags := app.HoldFlags(wanted.Hold, oneLine(wanted.Reason), oneLine(wanted.Ticket))
	seen, why := flags[:2], flags[2:]
	var length []string
	if o.lengthFlag != "" {
		length = []string{"--" + o.lengthFlag, wanted.flagDuration()}
	}
	if o.ReasonField == "note" { // which may be left out
		why = app.Flags("--note", oneLine(wanted.Reason), "--ticket", oneLine(wanted.Ticket))
	}
	if wanted.Undo {
		length = []string{"--withdraw"}
		why = nil
	}
	return text.Mutexctl(o.mutexctl(), wanted.Name, slices.Concat(seen, length, why)...)
}

// flagDuration returns Duration for the command line; the form's default if it is unreadable.
func (r *Request) flagDuration() string {
	d, err := locks.ParseDuration(strings.Join(strings.Fields(r.Duration), ""))
	if err != nil || d <= 0 {
		d = defaultDuration
	}
	return text.FlagDuration(d)
}
