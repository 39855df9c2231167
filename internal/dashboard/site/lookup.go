package site

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

// Hurried is the request for a page of a lock. One that can be shown from the picture waits for etcd only so long,
// unless etcd is known to answer all the same.
func (d *Site) Hurried(r *Request) (*Request, context.CancelFunc) {
	name, err := NameOf(r)
	if s, notYet := r.Loaded(); err != nil || notYet != nil || d.slow.Load() || len(s.Holders(name)) == 0 {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), etcdread.Hurry, etcdread.ErrSilent)
	return r.With(ctx), cancel
}

// Lock is one lock as it was found: the model of its page and of its JSON.
type Lock struct {
	*locks.Row                     // the current hold; nil when nobody holds the lock, or several do
	LockName     string            // the name that was asked for
	Shares       []*locks.Row      // those who share the lock now
	Document     metadata.Document // empty when etcd could not be read
	ReadRevision int64             // of etcd at the read
	Unread       string            // why etcd could not be read; empty when it could
	Silent       bool              // it was not waited for
	InLine       []metadata.Waiter // in order
	AskedHold    string            // the hold that was asked for, when it is not the current one
	Ending       *metadata.Ending  // of the asked hold, where it is recorded
}

// Find reads a lock: from etcd, or from the picture while etcd does not answer.
func (d *Site) Find(r *Request) (*Lock, error) {
	s, err := r.Loaded()
	if err != nil {
		return nil, err
	}
	name, err := NameOf(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	v := &Lock{Row: s.Find(name), LockName: name, Shares: s.Shares(name)}
	if v.Row == nil || !v.Row.Misplaced { // whose keys are those of no lock
		d.read(r, v, name)
	}
	if hold := r.URL.Query().Get("hold"); hold != "" && (v.Row == nil || v.UUID != hold) {
		v.AskedHold = hold
		v.Ending = d.Ending(ctx, name, hold)
	}
	if v.Row == nil && v.Ending == nil && len(v.Shares) == 0 {
		return nil, d.notHeld(name, v)
	}
	return v, nil
}

// Viewpoint is that of the lock, which is not stale where etcd has just been read.
func (v *Lock) Viewpoint(l phrase.Viewpoint) phrase.Viewpoint {
	if v.Unread == "" {
		return phrase.LiveAt(l.Now)
	}
	return l
}

// HolderOwner is the owner of the current hold.
func (v *Lock) HolderOwner() string {
	if v.Row == nil {
		return ""
	}
	return v.Owner
}

// read takes the lock from etcd, which knows more than the picture and knows it earlier.
func (d *Site) read(r *Request, v *Lock, name string) {
	type read struct {
		document metadata.Document
		revision int64
	}
	found, err := etcdread.Await(r.Context(), d.Config.Log, func(ctx context.Context) (read, error) {
		began := time.Now()
		document, revision, err := d.Config.Document(ctx, name)
		d.slow.Store(err == nil && time.Since(began) > etcdread.Hurry) // then waiting is worth it for the next page
		return read{document, revision}, err
	})
	document := found.document
	if d.Config.Waiters != nil {
		v.InLine = d.Config.Waiters(locks.ShareOf(&document.Record).QueueName(name))
		if err != nil && v.Row != nil {
			v.InLine = d.Config.Waiters(v.Share.QueueName(name))
		}
	}
	if err != nil {
		if v.Silent = errors.Is(err, etcdread.ErrSilent); v.Silent {
			v.Unread = err.Error()
		} else {
			v.Unread = d.Config.Explain(err)
		}
		return
	}
	v.Document = document
	v.ReadRevision = found.revision
	if len(document.Fields) == 0 {
		v.Row = nil
		return
	}
	v.Row = d.RowNow(r, &document.Record, v.InLine, v.Row)
}

// RowNow judges a record that was just read. before is the row of the picture, or nil.
func (d *Site) RowNow(at *Request, r *metadata.Record, waiters []metadata.Waiter, before *locks.Row) *locks.Row {
	moment := staleness.Moment{Wall: at.Now, Mono: at.mono}
	if r.Seen = (metadata.Seen{First: moment.Mono, Changed: moment.Mono}); before != nil && before.Token == r.Token {
		r.Seen = before.Seen
		r.Heed(before.Death, before.Suspicion)
		if !r.Written().Equal(before.Written()) {
			r.Seen.Changed = moment.Mono
			r.Seen.Arrived = 0
		}
	}
	return locks.NewRow(r, d.Config.Policy, moment, locks.QueueOf(waiters), before)
}

// Ending is how a hold ended: as it is recorded in etcd, or as the dashboard saw it.
func (d *Site) Ending(ctx context.Context, name, hold string) *metadata.Ending {
	if d.Config.Ending == nil {
		return d.History.Remembered(name, hold)
	}
	ending, err := etcdread.Await(ctx, d.Config.Log, func(ctx context.Context) (*metadata.Ending, error) {
		return d.Config.Ending(ctx,
			hold)
	})
	if err != nil && !errors.Is(err, etcdread.ErrSilent) {
		d.Config.Log.Warn().Err(err).Str("uuid", text.Visible(hold)).Msg("the ending of a hold could not be read")
	}
	if err != nil || ending == nil || ending.Lock != name {
		return d.History.Remembered(name, hold)
	}
	return ending
}

func (d *Site) notHeld(name string, v *Lock) error {
	p := &Problem{Status: http.StatusNotFound, Code: "not_found", Title: "Not held", Name: name,
		Detail: "Nobody holds the lock " + text.Visible(name) + " now.", LinkText: "Its history"}
	p.Link = d.Urls.To("history", "q", locks.Exactly("name", name))
	if n := len(v.InLine); n > 0 {
		p.Detail += " " + phrase.Plural(n, "waiter is", "waiters are") + " in line."
	}
	if v.AskedHold != "" {
		p.Detail += " This hold of it has ended, and how is not recorded: its holder released it, or the record is " +
			"too old."
	}
	if v.Unread != "" {
		p.Detail = "The lock " + text.Visible(name) +
			" is not among the last known ones, and etcd could not be asked: " +
			v.Unread + "."
	}
	return p
}
