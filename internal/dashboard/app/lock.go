package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// WithReadTimeout returns the request with [etcdread.ShortTimeout] if the snapshot has the lock or is stale, unless the
// last read succeeded, but took longer.
func (s *App) WithReadTimeout(r *Request) (*Request, context.CancelFunc) {
	name, err := NameOf(r)
	snapshot, notYet := r.Loaded()
	if err != nil || notYet != nil || s.slow.Load() {
		return r, func() {}
	}
	if len(snapshot.Holders(name)) == 0 && r.Level() != locks.Stale {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), etcdread.ShortTimeout, etcdread.ErrTimedOut)
	return r.With(ctx), cancel
}

// Lock is one lock as it was read: the model of its page and its JSON.
type Lock struct {
	Name          string              // that was asked for
	Row           *locks.Row          // the current hold; nil when nobody holds the lock, or several do
	Shares        []*locks.Row        // those who share the lock now
	FullRecord    metadata.FullRecord // empty when etcd could not be read
	ReadRevision  int64               // of etcd at the read
	ReadError     string              // why etcd could not be read; empty when it could
	TimedOut      bool                // ReadError is that the short timeout ended the read
	Waiters       []metadata.Waiter   // in order
	RequestedHold string              // the hold in the URL, if it is not the current one
	Ending        *metadata.Ending    // of RequestedHold, if it is known
}

// ReadHeldLock is [App.ReadLock], with an error if neither a holder nor the ending of the requested hold is known.
func (s *App) ReadHeldLock(r *Request) (*Lock, error) {
	l, err := s.ReadLock(r)
	if err == nil && l.Free() {
		if len(r.Snapshot().LeasedNamed(l.Name)) > 0 {
			return nil, &HTTPError{Status: http.StatusNotFound, Code: "not_found", Title: "Leased", Name: l.Name,
				Detail: "Another lock library holds " + text.Visible(l.Name) + ": nothing here ends it."}
		}
		return nil, s.notHeld(l, r.Snapshot().DelaysOf(l.Name))
	}
	return l, err
}

// Free reports whether nobody holds the lock, as far as is known, and no hold that is over is what was asked for.
func (l *Lock) Free() bool { return l.Row == nil && l.Ending == nil && len(l.Shares) == 0 }

// ReadLock reads a lock, whether it is held or not: from etcd, or from the snapshot while etcd does not answer.
func (s *App) ReadLock(r *Request) (*Lock, error) {
	snapshot, err := r.Loaded()
	if err != nil {
		return nil, err
	}
	name, err := NameOf(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	l := &Lock{Row: snapshot.Find(name), Name: name, Shares: snapshot.Shares(name)}
	if l.Row == nil || !l.Row.Misplaced { // whose keys are those of no lock
		s.read(r, l, name)
	}
	if hold := r.URL.Query().Get("hold"); hold != "" && (l.Row == nil || l.Row.UUID != hold) {
		l.RequestedHold = hold
		l.Ending = s.Ending(ctx, name, hold)
	}
	return l, nil
}

// Viewpoint returns the viewpoint for the lock, which is not stale if it has just been read from etcd.
func (l *Lock) Viewpoint(at Viewpoint) Viewpoint {
	if l.ReadError == "" {
		return LiveAt(at.Now)
	}
	return at
}

// IsOutdated reports whether what is shown of the lock is too old to act on.
func (l *Lock) IsOutdated(at Viewpoint) bool { return at.Stale || l.ReadError != "" && !l.TimedOut }

// MaxDelaysShown is how many lock delays of one lock people are shown.
const MaxDelaysShown = 10

// read takes the lock from etcd, which knows more than the snapshot and knows it earlier.
func (s *App) read(r *Request, l *Lock, name string) {
	type answer struct {
		full     metadata.FullRecord
		revision int64
	}
	found, err := etcdread.Await(r.Context(), s.Config.Log, func(ctx context.Context) (answer, error) {
		began := time.Now()
		full, revision, err := s.Config.Store.ReadRecord(ctx, name)
		// then waiting is worth it for the next page
		s.slow.Store(err == nil && time.Since(began) > etcdread.ShortTimeout)
		return answer{full, revision}, err
	})
	full := found.full
	held := &full.Record
	held.Name = name
	if err != nil && l.Row != nil {
		held = l.Row.Record
	}
	l.Waiters = r.Snapshot().Queues[held.QueueName()]
	if err != nil {
		l.TimedOut = errors.Is(err, etcdread.ErrTimedOut)
		l.ReadError = s.ReadErrorText(err)
		return
	}
	l.FullRecord = full
	l.ReadRevision = found.revision
	if len(full.Fields) == 0 {
		l.Row = nil
		return
	}
	l.Row = s.Config.Snapshots.Reread(&full.Record, l.Waiters, l.Row, r.Now)
}

// Ending returns how a hold ended: as it is recorded in etcd, or as the dashboard saw it.
func (s *App) Ending(ctx context.Context, name, hold string) *metadata.Ending {
	ending, err := etcdread.Await(ctx, s.Config.Log, func(ctx context.Context) (*metadata.Ending, error) {
		return s.Config.Store.ReadEnding(ctx, hold)
	})
	if err != nil && !errors.Is(err, etcdread.ErrTimedOut) {
		s.Config.Log.Warn().Err(err).Str("uuid", text.Visible(hold)).Msg("the ending of a hold could not be read")
	}
	if err != nil || ending == nil || ending.Name != name {
		return s.History.FindSeen(name, hold)
	}
	return ending
}

func (s *App) notHeld(l *Lock, delays []metadata.LockDelay) error {
	name := l.Name
	if l.ReadError != "" {
		return &HTTPError{Status: http.StatusServiceUnavailable, Code: "etcd", Title: "Not known", Name: name,
			Detail: "The lock " + text.Visible(name) + " was not held when etcd was last read, and etcd cannot be " +
				"read now: " + l.ReadError + ".", Retry: 5 * time.Second}
	}
	p := &HTTPError{Status: http.StatusNotFound, Code: "not_found", Title: "Not held", Name: name,
		Detail: "Nobody holds the lock " + text.Visible(name) + " now.", LinkText: "Its history"}
	p.Link = s.URLs.To("history", "q", locks.Exactly("name", name))
	for i := range delays[:min(len(delays), MaxDelaysShown)] {
		d := &delays[i]
		p.Detail += " There is " + protocol.DescribeDelay(d, s.Config.Now()) + " (" + text.Mutexctl(EndDelay, d.Name) +
			" ends it)."
	}
	if more := len(delays) - MaxDelaysShown; more > 0 {
		p.Detail += " There are " + Plural(more, "more delay", "more delays") + "."
	}
	if n := len(l.Waiters); n > 0 {
		p.Detail += " " + Plural(n, "waiter is", "waiters are") + " in line."
	}
	if l.RequestedHold != "" {
		p.Detail += " This hold has ended, and how is not recorded: its holder released it, or the record is " +
			"too old."
	}
	return p
}
