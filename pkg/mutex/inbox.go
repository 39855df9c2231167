package mutex

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// FinishRequested returns a channel that is closed when an operator, or a client that waits with [AskToFinish], asks
// the holder to finish. [Lock.FinishRequest] says who and why. The lock stays held: finish early if the work can;
// otherwise answer with the text of the next [Lock.Alive], which is shown beside the request.
//
// Requests are noticed at once, except in the first tenth of a second of a hold, and within a minute if a watch misses
// them. The end of the hold does not close the channel. The handle of several locks is asked when the holder of any of
// them is. Without a hold the channel is nil.
func (l *Lock) FinishRequested() <-chan struct{} {
	if l.hasNoHold() {
		return nil
	}
	if members := l.members(); len(members) == 1 {
		return members[0].finishRequestedContext().Done()
	}
	return l.group.finishRequested()
}

// anyFinishRequested returns a channel that is closed when the holder of any of the locks is asked.
func (g *Locks) anyFinishRequested() <-chan struct{} {
	asked := make(chan struct{})
	end := sync.OnceFunc(func() { close(asked) })
	for _, l := range g.locks {
		context.AfterFunc(l.finishRequestedContext(), end)
	}
	return asked
}

// FinishRequest returns the latest request to finish; nil if there is none. Its texts are whatever its writer wrote:
// escape them, or show a [FinishRequestError].
func (l *Lock) FinishRequest() *metadata.FinishRequest {
	if l.hasNoHold() {
		return nil
	}
	_, request := latestRequest(l.members())
	return request
}

// MoreTime returns what an operator last gave this hold, by whom and why; nil if nobody gave it more time.
func (l *Lock) MoreTime() *metadata.MoreTime {
	if l.hasNoHold() {
		return nil
	}
	hold := l.root()
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if hold.inbox == nil {
		return nil
	}
	return hold.inbox.moreTime
}

// FinishRequestError returns a [*FinishRequestError] for work that ends because it was asked to; nil if there is no
// request.
func (l *Lock) FinishRequestError() error {
	if l.hasNoHold() {
		return nil
	}
	by, request := latestRequest(l.members())
	if request == nil {
		return nil
	}
	return &FinishRequestError{Name: by.held.Lock, Request: *request, At: l.c.wall()}
}

// members returns the holds that the work under this handle needs.
func (l *Lock) members() []*Lock {
	if l.reentry.of != nil && l.group != nil {
		return l.group.locks
	}
	return []*Lock{l.root()}
}

// latestRequest returns the latest request to one of these handles, and which handle; nil if there is none.
func latestRequest(locks []*Lock) (whom *Lock, request *metadata.FinishRequest) {
	latest := int64(0)
	for _, l := range locks {
		l.mu.Lock()
		if m := l.inbox; m != nil && m.request != nil && m.requestRevision > latest {
			latest = m.requestRevision
			whom = l
			request = m.request
		}
		l.mu.Unlock()
	}
	return whom, request
}

// finishRequestedContext returns the context that ends when the holder of this handle is asked.
func (l *Lock) finishRequestedContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.ensureInbox()
	if m.finishRequested == nil {
		m.finishRequested, m.endFinishRequested = context.WithCancel(context.Background())
		if m.requestRevision != 0 {
			m.endFinishRequested()
		}
	}
	return m.finishRequested
}

// ensureInbox returns the inbox, creating it if needed. The caller holds mu.
func (l *Lock) ensureInbox() *inbox {
	if l.inbox == nil {
		l.inbox = &inbox{}
	}
	return l.inbox
}

// applyEvents takes over what others wrote, from the events of a watch. It reports whether one of them gave more time:
// the alert, which is not watched, then has to be read.
func (l *Lock) applyEvents(events []*clientv3.Event) (hasMoreTime bool) {
	var fields []metadata.Field
	record := l.c.layout.Record(l.held.Lock)
	for _, e := range events {
		if e.Type != clientv3.EventTypePut || e.Kv.ModRevision <= l.held.Token {
			continue
		}
		name := strings.TrimPrefix(string(e.Kv.Key), record)
		switch name {
		case lockrecord.FieldExtended:
			hasMoreTime = true
		case lockrecord.FieldAsked, lockrecord.FieldAutoUnlockAt:
		default:
			continue
		}
		fields = slices.DeleteFunc(fields, func(f metadata.Field) bool { return f.Name == name })
		fields = append(fields, metadata.Field{Name: name, Value: string(e.Kv.Value), ModRevision: e.Kv.ModRevision})
	}
	if len(fields) > 0 {
		l.applyFields(fields)
	}
	return hasMoreTime
}

func (l *Lock) applyFields(fields []metadata.Field) {
	record := l.decode(fields)
	l.applyRecord(&record)
}

func (l *Lock) decode(fields []metadata.Field) metadata.FullRecord {
	return lockrecord.Decode(l.held.Lock, append(fields, metadata.Field{Name: lockrecord.FieldUUID, Value: l.held.UUID,
		CreateRevision: l.held.Token, ModRevision: l.held.Token}))
}

// applyRecord takes over what others wrote into the record. A request or more time that cannot be read, or is meant for
// another hold, is not in the given record.
func (l *Lock) applyRecord(record *metadata.FullRecord) {
	l.mu.Lock()
	if l.cause != nil {
		l.mu.Unlock()
		return
	}
	if record.FinishRequest != nil {
		l.storeFinishRequest(record.FinishRequest, fieldOf(record, lockrecord.FieldAsked).ModRevision)
	}
	given := l.storeMoreTime(record)
	l.applyAutoUnlock(record.AutoUnlockAt, given)
	m := l.inbox
	deliver := m != nil && !m.delivering && (m.newRequest || m.newMoreTime)
	if deliver {
		m.delivering = true
	}
	l.mu.Unlock()
	if deliver {
		l.c.spawn(l.deliver)
	}
}

// storeFinishRequest stores a request with this revision. The caller holds mu.
func (l *Lock) storeFinishRequest(r *metadata.FinishRequest, revision int64) {
	m := l.ensureInbox()
	if revision <= m.requestRevision {
		return
	}
	m.request = r
	m.requestRevision = revision
	m.newRequest = true
	if m.endFinishRequested != nil {
		m.endFinishRequested()
	}
}

// storeMoreTime stores more time and returns it if it wrote the auto-unlock in the record. The caller holds mu.
func (l *Lock) storeMoreTime(record *metadata.FullRecord) *metadata.MoreTime {
	e := record.MoreTime
	if e == nil {
		return nil
	}
	m := l.ensureInbox()
	revision := fieldOf(record, lockrecord.FieldExtended).ModRevision
	last := record.DeadlineRevision == revision
	if longer := record.AutoUnlockAt.Sub(e.AutoUnlockAt.Time); revision > m.moreTimeRevision {
		m.moreTime = e
		m.moreTimeRevision = revision
		m.newMoreTime = true
		if last && longer > 0 && !e.AutoUnlockAt.IsZero() { // for a heartbeat, which does not report progress
			l.extension.alertTarget = l.extension.alertTarget.Add(longer)
		}
	}
	if revision == m.moreTimeRevision && fieldOf(record, lockrecord.FieldAlertAt).ModRevision == revision {
		m.alertAt = protocol.Later(m.alertAt, record.AlertAt)
	}
	if !last {
		return nil
	}
	return e
}

func fieldOf(record *metadata.FullRecord, name string) metadata.Field {
	for _, f := range record.Fields {
		if f.Name == name {
			return f
		}
	}
	return metadata.Field{}
}

// deliver reports new messages to the log, the hooks and the holder, until there are none.
func (l *Lock) deliver() {
	for {
		l.mu.Lock()
		m := l.inbox
		request, asked := m.request, m.newRequest
		moreTime, given := m.moreTime, m.newMoreTime
		m.newRequest = false
		m.newMoreTime = false
		m.delivering = asked || given
		l.mu.Unlock()
		if asked {
			l.notifyFinishRequest(request)
		}
		if given {
			l.notifyMoreTime(moreTime)
		}
		if !asked && !given {
			return
		}
	}
}

func (l *Lock) notifyFinishRequest(r *metadata.FinishRequest) {
	l.c.log(slog.LevelInfo, "asked to finish", l.logAttributes(slog.String("by", plain(r.By)),
		slog.String("source", plain(r.Source)), slog.String("reason", plain(r.Reason)))...)
	notify(l.c.opts.Hooks.FinishRequested, FinishRequested{Lock: l, Request: *r})
	notify(l.set.onFinishRequest, *r)
}

func (l *Lock) notifyMoreTime(m *metadata.MoreTime) {
	l.c.log(slog.LevelInfo, "given more time", l.logAttributes(slog.String("by", plain(m.By)),
		slog.String("reason", plain(m.Reason)), slog.Duration("time_left", time.Until(l.Deadline())))...)
	notify(l.c.opts.Hooks.MoreTimeGiven, MoreTimeGiven{Lock: l, MoreTime: *m})
}
