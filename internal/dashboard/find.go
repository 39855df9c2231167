package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// hurried is the request for a page of a lock. One that can be shown from the picture waits for etcd only so long,
// unless etcd is known to answer all the same.
func (d *Dashboard) hurried(r *request) (*request, context.CancelFunc) {
	name, err := nameOf(r)
	if s, notYet := r.loaded(); err != nil || notYet != nil || d.slow.Load() || len(s.Holders(name)) == 0 {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), etcdread.Hurry, etcdread.ErrSilent)
	return r.with(ctx), cancel
}

// lockView is one lock as it was found: the model of its page and of its JSON.
type lockView struct {
	*locks.Row                   // the current hold; nil when nobody holds the lock, or several do
	lock       string            // the name that was asked for
	view       string            // of the list, that led here
	shares     []*locks.Row      // those who share the lock now
	document   metadata.Document // empty when etcd could not be read
	revision   int64             // of etcd at the read
	unread     string            // why etcd could not be read; empty when it could
	silent     bool              // it was not waited for
	waiters    []metadata.Waiter // in order
	asked      string            // the hold that was asked for, when it is not the current one
	ending     *metadata.Ending  // of the asked hold, where it is recorded
}

// find reads a lock: from etcd, or from the picture while etcd does not answer.
func (d *Dashboard) find(r *request) (*lockView, error) {
	s, err := r.loaded()
	if err != nil {
		return nil, err
	}
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	v := &lockView{Row: s.Find(name), lock: name, view: d.urls.fromView(r), shares: s.Shares(name)}
	if v.Row == nil || !v.Row.Misplaced { // whose keys are those of no lock
		d.read(r, v, name)
	}
	if hold := r.URL.Query().Get("hold"); hold != "" && (v.Row == nil || v.UUID != hold) {
		v.asked = hold
		v.ending = d.ending(ctx, name, hold)
	}
	if v.Row == nil && v.ending == nil && len(v.shares) == 0 {
		return nil, d.notHeld(name, v)
	}
	return v, nil
}

// viewpoint is that of the lock, which is not stale where etcd has just been read.
func (v *lockView) viewpoint(l phrase.Viewpoint) phrase.Viewpoint {
	if v.unread == "" {
		return phrase.LiveAt(l.Now)
	}
	return l
}

// owner is the owner of the current hold.
func (v *lockView) owner() string {
	if v.Row == nil {
		return ""
	}
	return v.Owner
}

// read takes the lock from etcd, which knows more than the picture and knows it earlier.
func (d *Dashboard) read(r *request, v *lockView, name string) {
	type read struct {
		document metadata.Document
		revision int64
	}
	found, err := etcdread.Await(r.Context(), d.config.Log, func(ctx context.Context) (read, error) {
		began := time.Now()
		document, revision, err := d.config.Document(ctx, name)
		d.slow.Store(err == nil && time.Since(began) > etcdread.Hurry) // then waiting is worth it for the next page
		return read{document, revision}, err
	})
	document := found.document
	if d.config.Waiters != nil {
		v.waiters = d.config.Waiters(locks.ShareOf(&document.Record).QueueName(name))
		if err != nil && v.Row != nil {
			v.waiters = d.config.Waiters(v.Share.QueueName(name))
		}
	}
	if err != nil {
		if v.silent = errors.Is(err, etcdread.ErrSilent); v.silent {
			v.unread = err.Error()
		} else {
			v.unread = d.config.Explain(err)
		}
		return
	}
	v.document, v.revision = document, found.revision
	if len(document.Fields) == 0 {
		v.Row = nil
		return
	}
	v.Row = d.rowNow(r, &document.Record, v.waiters, v.Row)
}

// rowNow judges a record that was just read. before is the row of the picture, or nil.
func (d *Dashboard) rowNow(at *request, r *metadata.Record, waiters []metadata.Waiter, before *locks.Row) *locks.Row {
	moment := staleness.Moment{Wall: at.now, Mono: at.mono}
	if r.Seen = (metadata.Seen{First: moment.Mono, Changed: moment.Mono}); before != nil && before.Token == r.Token {
		r.Seen = before.Seen
		if !r.Written().Equal(before.Written()) {
			r.Seen.Changed = moment.Mono
			r.Seen.Arrived = 0
		}
	}
	return locks.NewRow(r, d.config.Policy, moment, locks.QueueOf(waiters), before)
}

// ending is how a hold ended: as it is recorded in etcd, or as the dashboard saw it.
func (d *Dashboard) ending(ctx context.Context, name, hold string) *metadata.Ending {
	if d.config.Ending == nil {
		return d.past.Remembered(name, hold)
	}
	ending, err := etcdread.Await(ctx, d.config.Log, func(ctx context.Context) (*metadata.Ending, error) {
		return d.config.Ending(ctx,
			hold)
	})
	if err != nil && !errors.Is(err, etcdread.ErrSilent) {
		d.config.Log.Warn().Err(err).Str("uuid", text.Visible(hold)).Msg("the ending of a hold could not be read")
	}
	if err != nil || ending == nil || ending.Lock != name {
		return d.past.Remembered(name, hold)
	}
	return ending
}

func (d *Dashboard) notHeld(name string, v *lockView) error {
	p := &problem{Status: http.StatusNotFound, Code: "not_found", Title: "Not held", Name: name,
		Detail: "Nobody holds the lock " + text.Visible(name) + " now.", LinkText: "Its history"}
	p.Link = d.urls.To("history", "q", locks.Exactly("name", name))
	if n := len(v.waiters); n > 0 {
		p.Detail += " " + phrase.Plural(n, "waiter is", "waiters are") + " in line."
	}
	if v.asked != "" {
		p.Detail += " This hold of it has ended, and how is not recorded: its holder released it, or the record is too old."
	}
	if v.unread != "" {
		p.Detail = "The lock " + text.Visible(name) + " is not among the last known ones, and etcd could not be asked: " +
			v.unread + "."
	}
	return p
}
