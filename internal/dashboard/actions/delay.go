package actions

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type delayPage struct {
	app.Page
	Name    string
	Words   string // what delay it is
	Purpose string
	Host    string        // of the former holder
	Until   *app.TimeText // when it ends by itself; nil where that is not known, or never
	IsShare bool          // the delay is that of a share: there may be others
	Queue   pages.QueueView
	confirmForm
}

// delayOf returns the lock delay of exactly this lock or share; nil when there is none.
func delayOf(s *locks.Snapshot, name string) *metadata.LockDelay {
	delays := s.DelaysOf(name)
	i := slices.IndexFunc(delays, func(d metadata.LockDelay) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &delays[i]
}

func (o *Operation) showDelay(r *app.Request, typed Request, name string, wrong *FieldError) (app.Answer, error) {
	lock, err := app.NameOf(r)
	if err != nil {
		return app.Answer{}, err
	}
	d := delayOf(r.Snapshot(), lock)
	if d == nil || d.UUID != r.URL.Query().Get("hold") {
		return app.Answer{}, o.delayOver(r, lock, d)
	}
	if err := o.app.AuthorizeFor(r.Caller, o.permission(), d.Owner); err != nil {
		return app.Answer{}, err
	}
	v := delayPage{Page: o.app.Page(r, "end the lock delay of "+lock), Name: lock,
		Words: protocol.DescribeDelay(d, r.Now), Purpose: d.Purpose,
		Host: app.HostPID(d.Hostname, 0),
		confirmForm: confirmForm{Shown: text.Visible(lock), Token: d.Token, Revision: d.Revision, Hold: d.UUID,
			Do: "End the lock delay of " + text.Visible(lock), Kept: "the audit trail"}}
	v.NavEntry = "list"
	o.fill(&v.confirmForm, typed, name, wrong)
	v.Action = o.app.URLs.Action(o.Page(), lock, d.UUID)
	v.Cancel = o.afterDelay(r, Request{Name: lock})
	if until := v.Viewpoint.Next(d.Until()); until != nil && until.Kind == "next" {
		v.Until = until
	}
	whole := o.lockOf(r, lock)
	v.IsShare = whole != lock
	v.Queue = pages.NewQueueView(r.Snapshot().Queues[whole], 1, v.Viewpoint)
	a, err := o.app.Render("end-delay", v)
	return asForm(a, wrong), err
}

// lockOf returns the lock whose share has the delay, if it has holders or waiters; otherwise the name is that of the
// lock itself, which may well be called "build#7".
func (o *Operation) lockOf(r *app.Request, name string) string {
	base, _, ok := metadata.ParseShare(name)
	if ok && (len(r.Snapshot().Shares(base)) > 0 || len(r.Snapshot().Queues[base]) > 0) {
		return base
	}
	return name
}

// afterDelay returns the URL of the page of the lock, which shows who has got it.
func (o *Operation) afterDelay(r *app.Request, wanted Request) string {
	return o.app.URLs.Lock(o.lockOf(r, wanted.Name), "")
}

// performOnDelay ends the lock delay that the person saw, in one transaction that also records it. Nothing is sent
// twice.
func (o *Operation) performOnDelay(r *app.Request, wanted Request) (protocol.Action, error) {
	r = r.With(context.WithoutCancel(r.Context())) // closing the tab now must not change the outcome
	d := delayOf(r.Snapshot(), wanted.Name)
	if d == nil {
		return o.newAction(r, wanted, ""), o.delayOver(r, wanted.Name, nil)
	}
	action := o.newAction(r, wanted, protocol.DescribeDelay(d, r.Now))
	if err := o.app.AuthorizeFor(r.Caller, o.permission(), d.Owner); err != nil {
		return action, err
	}
	if d.UUID != wanted.Hold || d.Token != wanted.Token || d.Revision != wanted.Revision {
		return action, o.delayOver(r, wanted.Name, d)
	}
	_, err := o.send(r, wanted, protocol.ActionTarget{Delay: d}, action)
	switch {
	case errors.Is(err, metadata.ErrChanged):
		err = o.delayOver(r, wanted.Name, nil)
	case errors.Is(err, metadata.ErrOutcomeUnknown):
		err = o.unknown(wanted.Name, o.afterDelay(r, wanted), err)
	}
	return action, err
}

// delayOver returns the error for a lock delay that is over, which says whether there is another one now.
func (o *Operation) delayOver(r *app.Request, name string, now *metadata.LockDelay) error {
	p := &app.HTTPError{Status: http.StatusConflict, Code: "delay_over", Title: "Not done", Name: name,
		Link:   o.afterDelay(r, Request{Name: name}),
		Detail: "Nothing was done. The lock delay that you saw has ended."}
	if now != nil {
		p.Detail += " There is now " + protocol.DescribeDelay(now, r.Now) + "."
	}
	return p
}
