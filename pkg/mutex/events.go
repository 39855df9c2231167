package mutex

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Asked returns a channel that is closed when somebody asks the holder to finish: an operator, or a client that waits
// with [Urgent]. [Lock.Request] says who and why. It is a question, and the lock stays held: finish early if the work
// can, and otherwise answer by the text of the next [Lock.Alive], which is shown beside the request.
//
// Requests are noticed at once, but not in the first tenth of a second of a hold, and within a minute if etcd cannot be
// reached. The channel stays as it is when the hold ends. A handle that stands for several locks is asked when the
// holder of any of them is. Without a hold the channel is nil.
func (l *Lock) Asked() <-chan struct{} {
	if l.none() {
		return nil
	}
	members := l.members()
	if len(members) == 1 {
		return members[0].askedChannel()
	}
	l.mu.Lock()
	listens := l.news != nil && l.news.asked != nil
	l.mu.Unlock()
	asked := l.askedChannel()
	if !listens {
		for _, one := range members {
			one.whenAsked(l.closeAsked)
		}
	}
	return asked
}

// Request returns the latest request to finish, nil if nobody asked. Its texts are whatever its writer wrote: escape
// them, or show an [AskedError], which does.
func (l *Lock) Request() *metadata.Request {
	if l.none() {
		return nil
	}
	_, request := latestRequest(l.members())
	return request
}

// Extended returns who last gave this hold more time, and why, nil if nobody did.
func (l *Lock) Extended() *metadata.Extension {
	if l.none() {
		return nil
	}
	hold := l.root()
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if hold.news == nil {
		return nil
	}
	return hold.news.extension
}

// AskedError returns an error for work that ends because it was asked to, nil if nobody asked: as the cause of a
// context, or for the work to return.
func (l *Lock) AskedError() error {
	if l.none() {
		return nil
	}
	by, request := latestRequest(l.members())
	if request == nil {
		return nil
	}
	return &AskedError{Lock: by.held.Lock, Request: *request, At: l.c.wall()}
}

// Asked is [Lock.Asked] for any of the locks.
func (g *Locks) Asked() <-chan struct{} {
	if g == nil {
		return nil
	}
	return g.whole.Asked()
}

// Request is [Lock.Request] for any of the locks: the latest.
func (g *Locks) Request() *metadata.Request {
	if g == nil {
		return nil
	}
	return g.whole.Request()
}

// members are the handles of acquisitions whose requests concern this one.
func (l *Lock) members() []*Lock {
	if l.reentry.of != nil && l.group != nil { // the work needs all of them
		return l.group.locks
	}
	return []*Lock{l.root()}
}

// latestRequest returns the latest request to one of these holders, and whom it asks; nil if there is none.
func latestRequest(locks []*Lock) (whom *Lock, request *metadata.Request) {
	latest := int64(0)
	for _, l := range locks {
		l.mu.Lock()
		if n := l.news; n != nil && n.request != nil && n.requested > latest {
			latest = n.requested
			whom = l
			request = n.request
		}
		l.mu.Unlock()
	}
	return whom, request
}

// askedChannel returns the channel of this handle.
func (l *Lock) askedChannel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.hear()
	if n.asked == nil {
		n.asked = make(chan struct{})
		if n.requested != 0 {
			close(n.asked)
		}
	}
	return n.asked
}

// closeAsked closes the channel of a handle that stands for several locks.
func (l *Lock) closeAsked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.hear(); n.requested == 0 {
		n.requested = 1
		close(n.asked)
	}
}

// whenAsked calls f when the first request comes, at once if there is one.
func (l *Lock) whenAsked(f func()) {
	l.mu.Lock()
	n := l.hear()
	asked := n.requested != 0
	if !asked {
		n.listeners = append(n.listeners, f)
	}
	l.mu.Unlock()
	if asked {
		f()
	}
}

// hear returns what is known, to add to it. The caller holds mu.
func (l *Lock) hear() *news {
	if l.news == nil {
		l.news = &news{}
	}
	return l.news
}

// alertGranted returns the alert that an operator granted, zero if none did. The caller holds mu.
func (l *Lock) alertGranted() time.Time {
	if l.news == nil {
		return time.Time{}
	}
	return l.news.alertAt
}

// learnFrom takes over what others wrote, by the events of a watch. It reports whether one of them gave more time: then
// the alert, which is not watched, has to be read.
func (l *Lock) learnFrom(events []*clientv3.Event) (extended bool) {
	var fields []metadata.Field
	record := l.c.layout.Record(l.held.Lock)
	for _, e := range events {
		if e.Type != clientv3.EventTypePut || e.Kv.ModRevision <= l.held.Token {
			continue
		}
		name := strings.TrimPrefix(string(e.Kv.Key), record)
		switch name {
		case metadata.FieldExtended:
			extended = true
		case metadata.FieldAsked, metadata.FieldAutoUnlockAt:
		default:
			continue
		}
		fields = slices.DeleteFunc(fields, func(f metadata.Field) bool { return f.Name == name })
		fields = append(fields, metadata.Field{Name: name, Value: string(e.Kv.Value), ModRevision: e.Kv.ModRevision})
	}
	// That alone comes after each of the holder's own extensions.
	if len(fields) == 1 && fields[0].Name == metadata.FieldAutoUnlockAt {
		l.deadlineIs(fields[0].Value)
	} else if len(fields) > 0 {
		l.learn(fields)
	}
	return extended
}

// deadlineIs takes over the auto-unlock in the record.
func (l *Lock) deadlineIs(value string) {
	if t, err := metadata.ParseTime(value); err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.postpone(t, nil)
	}
}

// learn takes over what others wrote into these fields of the hold's record.
func (l *Lock) learn(fields []metadata.Field) {
	doc := l.decode(fields)
	l.learnAll(&doc)
}

// decode reads some fields of the hold's record.
func (l *Lock) decode(fields []metadata.Field) metadata.Document {
	return metadata.Decode(l.held.Lock, append(fields, metadata.Field{Name: metadata.FieldUUID, Value: l.held.UUID,
		CreateRevision: l.held.Token, ModRevision: l.held.Token}))
}

// learnAll takes over what others wrote into the hold's record. A request or extension that cannot be read, or is meant
// for another hold, is not in it.
func (l *Lock) learnAll(doc *metadata.Document) {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	var listeners []func()
	if doc.Asked != nil {
		listeners = l.request(doc.Asked, writtenAt(doc, metadata.FieldAsked))
	}
	by := l.grant(doc)
	l.postpone(doc.AutoUnlockAt, by)
	n := l.news
	tell := n != nil && !n.telling && (n.requested > n.toldRequested || n.extended > n.toldExtended)
	if tell {
		n.telling = true
	}
	l.mu.Unlock()
	for _, f := range listeners {
		f()
	}
	if tell {
		l.c.spawn(l.tell)
	}
}

// request takes over a request with this revision, and returns whom to call because it is the first. The caller holds
// mu.
func (l *Lock) request(r *metadata.Request, revision int64) (listeners []func()) {
	n := l.hear()
	if revision <= n.requested {
		return nil
	}
	if n.requested == 0 && n.asked != nil {
		close(n.asked)
	}
	listeners = n.listeners
	n.listeners = nil
	n.request = r
	n.requested = revision
	return listeners
}

// grant takes over an extension, and returns it if it wrote the auto-unlock in the record. The caller holds mu.
func (l *Lock) grant(doc *metadata.Document) *metadata.Extension {
	e := doc.Extended
	if e == nil {
		return nil
	}
	n := l.hear()
	revision := writtenAt(doc, metadata.FieldExtended)
	last := doc.DeadlineRevision == revision
	if longer := doc.AutoUnlockAt.Sub(e.AutoUnlockAt.Time); revision > n.extended {
		n.extension = e
		n.extended = revision
		if last && longer > 0 && !e.AutoUnlockAt.IsZero() { // for a heartbeat, which does not report progress
			l.extension.alertTarget = l.extension.alertTarget.Add(longer)
		}
	}
	if revision == n.extended && writtenAt(doc, metadata.FieldAlertAt) == revision {
		n.alertAt = latest(n.alertAt, doc.AlertAt)
	}
	if !last {
		return nil
	}
	return e
}

// writtenAt returns the mod revision of a field, 0 if the record does not have it.
func writtenAt(doc *metadata.Document, field string) int64 {
	for _, f := range doc.Fields {
		if f.Name == field {
			return f.ModRevision
		}
	}
	return 0
}

// tell reports what is new to the log, the hooks and the holder, until there is nothing.
func (l *Lock) tell() {
	for {
		l.mu.Lock()
		n := l.news
		asked := n.requested > n.toldRequested
		extended := n.extended > n.toldExtended
		request := n.request
		extension := n.extension
		n.toldRequested = n.requested
		n.toldExtended = n.extended
		n.telling = asked || extended
		l.mu.Unlock()
		switch {
		case !asked && !extended:
			return
		case asked:
			l.tellAsked(request)
		}
		if extended {
			l.tellExtended(extension)
		}
	}
}

func (l *Lock) tellAsked(r *metadata.Request) {
	l.c.log(slog.LevelInfo, "asked to finish", l.about(slog.String("by", plain(r.By)),
		slog.String("source", plain(r.Source)), slog.String("reason", plain(r.Reason)))...)
	if hook := l.c.opts.Hooks.Asked; hook != nil {
		hook(Asked{Hold: l, Request: *r})
	}
	if l.set.onAsked != nil {
		l.set.onAsked(*r)
	}
}

func (l *Lock) tellExtended(e *metadata.Extension) {
	l.c.log(slog.LevelInfo, "given more time", l.about(slog.String("by", plain(e.By)),
		slog.String("reason", plain(e.Reason)), slog.Duration("time_left", time.Until(l.Deadline())))...)
	if hook := l.c.opts.Hooks.GivenTime; hook != nil {
		hook(GivenTime{Hold: l, Extension: *e})
	}
}
