package lockstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// ProgressInterval is how often a watch asks etcd for its progress, and so gets a sign of life from a healthy one.
const ProgressInterval = 2 * time.Second

const (
	maxRevisionsBehind = 5_000    // catching up from further behind costs etcd more than a list
	maxBacklog         = 64 << 20 // in bytes, for a consumer that is slower than etcd
)

// Watch calls each for everything that happens below a prefix after the revision after. A call gets all events of one
// revision, never some of them. At every [ProgressInterval] a call without events means that nothing else happened up
// to that revision. The events are valid only until each returns.
//
// It blocks until the watch ends, as every watch does sooner or later, and returns why: a [*WatchError], or the cause
// of ctx. Then list again and watch from that revision.
func (s *Store) Watch(ctx context.Context, prefix string, after int64,
	each func(revision int64, events []protocol.Event)) error {
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{
		store: s, prefix: prefix, end: end,
		backlog: &backlog{limit: maxBacklog, ready: make(chan struct{}, 1)},
		// A separate watcher has a separate stream, which no other slow watch can block.
		watcher: clientv3.NewWatcher(s.client),
	}
	w.highestRevision.Store(after)
	w.heardAt.Store(new(time.Now()))
	var helpers sync.WaitGroup
	defer func() {
		end(nil)
		w.watcher.Close()
		helpers.Wait()
	}()
	helpers.Go(func() { w.receive(ctx, after) })
	helpers.Go(func() { w.keepChecking(ctx) })
	return w.deliver(ctx, after, each)
}

type watch struct {
	store           *Store
	prefix          string
	watcher         clientv3.Watcher
	end             context.CancelCauseFunc
	backlog         *backlog
	highestRevision atomic.Int64 // highest revision heard of
	heardAt         atomic.Pointer[time.Time]
	progressSeen    atomic.Bool // the stream has given a sign of life since it was last asked
	caughtUp        bool        // it has caught up once; only receive uses it
}

// receive takes what etcd sends as fast as it arrives, because etcd's client buffers the rest without a limit.
func (w *watch) receive(ctx context.Context, after int64) {
	answers := w.watcher.Watch(clientv3.WithRequireLeader(ctx), w.prefix,
		clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFragment())
	for resp := range answers {
		if err := w.handle(resp); err != nil {
			w.end(err)
			return
		}
	}
	w.end(&WatchError{ReasonConnection, errClosed})
}

// handle checks a response, and puts it into the backlog.
func (w *watch) handle(resp clientv3.WatchResponse) error {
	if err := resp.Err(); err != nil {
		return &WatchError{reasonOf(err), err}
	}
	now, highest := resp.Header.GetRevision(), w.highestRevision.Load()
	if now < highest && now != 0 {
		return errWentBack(highest, now)
	}
	w.heardAt.Store(new(time.Now()))
	w.progressSeen.Store(true)
	last := now
	if n := len(resp.Events); n > 0 {
		last = resp.Events[n-1].Kv.ModRevision
	}
	switch behind := now - last; {
	case behind == 0:
		w.caughtUp = true
	case behind > maxRevisionsBehind && w.caughtUp:
		// the client lost its connection and resumed; right after a list, being behind is normal
		return &WatchError{ReasonBehind, fmt.Errorf("the watch is %d revisions behind", behind)}
	}
	w.highestRevision.Store(last)
	if !w.backlog.add(resp) {
		return &WatchError{ReasonSlow, fmt.Errorf("more than %d MB of events are waiting", maxBacklog>>20)}
	}
	return nil
}

// keepChecking asks for signs of life and ends the watch when there are none.
func (w *watch) keepChecking(ctx context.Context) {
	ticker := time.NewTicker(w.store.progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := w.checkAlive(ctx); err != nil {
			w.end(err)
			return
		}
	}
}

// checkAlive asks for progress, and returns an error if etcd has been silent for too long.
func (w *watch) checkAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.store.progressInterval)
	defer cancel()
	if !w.progressSeen.Swap(false) {
		if err := w.probe(ctx); err != nil {
			return err
		}
	}
	if quiet := time.Since(*w.heardAt.Load()); quiet >= w.store.maxSilence {
		return &WatchError{ReasonSilent, fmt.Errorf("nothing heard for %v", quiet.Round(time.Millisecond))}
	}
	// Other metadata in the context would select another stream. The answer arrives as an event, so an error here shows
	// as its absence.
	_ = w.watcher.RequestProgress(clientv3.WithRequireLeader(ctx))
	return nil
}

// probe reads etcd's revision. A watch that starts above it gets no progress reports until something is written, or
// never if etcd was restored from an older state.
func (w *watch) probe(ctx context.Context) error {
	seen := w.highestRevision.Load()
	resp, err := w.store.etcd.Get(ctx, w.prefix)
	if err != nil {
		return nil // keepChecking notices the silence
	}
	switch now := resp.Header.Revision; {
	case now < seen:
		return errWentBack(seen, now)
	case now == seen: // the watch cannot have missed anything
		w.heardAt.Store(new(time.Now()))
		w.backlog.add(clientv3.WatchResponse{Header: resp.Header})
	}
	return nil
}

// deliver passes the events in the backlog to each, until ctx ends.
func (w *watch) deliver(ctx context.Context, after int64, each func(int64, []protocol.Event)) error {
	done := after
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.backlog.ready:
		}
		for _, resp := range w.backlog.take() {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			done = deliverRevisions(resp, done, each)
		}
	}
}

// deliverRevisions calls each for every revision of a response, which has whole revisions only, and returns the last
// revision passed to each.
func deliverRevisions(resp clientv3.WatchResponse, done int64, each func(int64, []protocol.Event)) int64 {
	if len(resp.Events) == 0 {
		done = max(done, resp.Header.GetRevision())
		each(done, nil)
	}
	for events := resp.Events; len(events) > 0; {
		revision := events[0].Kv.ModRevision
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == revision {
			n++
		}
		if revision > done {
			each(revision, convert(events[:n]))
			done = revision
		}
		events = events[n:]
	}
	return done
}

func convert(events []*clientv3.Event) []protocol.Event {
	converted := make([]protocol.Event, len(events))
	for i, e := range events {
		converted[i] = protocol.Event{KV: locktxn.KV(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete}
	}
	return converted
}

// The causes for which a watch ended, in one word: the values of a metric label.
const (
	ReasonCompacted  = "compacted"  // etcd compacted revisions that the watch still needed
	ReasonNoLeader   = "no_leader"  // the member lost contact with the majority
	ReasonToken      = "token"      // the auth token expired; the next request logs in again
	ReasonPermission = "permission" // permission to read the prefix was revoked
	ReasonConnection = "connection"
	ReasonSilent     = "silent"    // connected, but nothing arrives
	ReasonSlow       = "slow"      // this process cannot keep up
	ReasonBehind     = "behind"    // so far behind after an interruption that listing again is cheaper
	ReasonWentBack   = "went_back" // etcd was restored from an older state
	ReasonOther      = "other"
)

var errClosed = errors.New("the watch was closed")

// WatchError is the error with which a watch ended.
type WatchError struct {
	reason string
	err    error
}

// Reason returns the cause in one word.
func (e *WatchError) Reason() string { return e.reason }

// Error returns the cause as a sentence.
func (e *WatchError) Error() string { return fmt.Sprintf("the watch ended: %v", e.err) }

// Unwrap returns the underlying error.
func (e *WatchError) Unwrap() error { return e.err }

func errWentBack(from, to int64) *WatchError {
	return &WatchError{ReasonWentBack,
		fmt.Errorf("etcd went back from revision %d to %d: it was restored from an older state", from, to)}
}

// reasonOf classifies an error of a watch. Some etcd errors lose their type on the way and are recognized by text.
func reasonOf(err error) string {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{rpctypes.ErrCompacted, ReasonCompacted}, {rpctypes.ErrNoLeader, ReasonNoLeader},
		{rpctypes.ErrFutureRev, ReasonWentBack},
		{rpctypes.ErrPermissionDenied, ReasonPermission}, {rpctypes.ErrInvalidAuthToken, ReasonToken},
		{rpctypes.ErrAuthOldRevision, ReasonToken},
	} {
		if errors.Is(err, known.err) || strings.Contains(err.Error(), known.err.Error()) {
			return known.reason
		}
	}
	byCode := map[codes.Code]string{codes.PermissionDenied: ReasonPermission, codes.Unauthenticated: ReasonToken,
		codes.Unavailable: ReasonConnection}
	return cmp.Or(byCode[locktxn.Code(err)], ReasonOther)
}

// backlog is a queue, limited in bytes, between the watch, which must never wait, and its consumer.
type backlog struct {
	limit int
	ready chan struct{} // has an element while the queue is not empty

	mu    sync.Mutex
	queue []clientv3.WatchResponse
	bytes int
}

// add adds resp. It reports false, and adds nothing, if the limit is reached.
func (b *backlog) add(resp clientv3.WatchResponse) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes >= b.limit { // a single answer may be larger than the limit
		return false
	}
	b.queue = append(b.queue, resp)
	b.bytes += size(resp)
	notify(b.ready)
	return true
}

// take removes and returns all that is queued.
func (b *backlog) take() []clientv3.WatchResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue
	b.queue = nil
	b.bytes = 0
	return queue
}

// size returns about how much memory an answer takes, in bytes.
func size(resp clientv3.WatchResponse) int {
	const structs = 300
	n := structs
	for _, e := range resp.Events {
		n += structs + len(e.Kv.Key) + len(e.Kv.Value)
	}
	return n
}

// lockRecheck is how often a lock is read again without events, in case a watch went silent.
const lockRecheck = 10 * time.Second

// WatchLock calls read when the lock may have changed: once its watches are open, after changes of its record, of the
// records of its shares, of their delays and of its queue, and occasionally without any. Changes during a call lead to
// one more call. It returns when read has seen enough, or with the reason when ctx ends.
//
// etcd does not send events of other locks.
func (s *Store) WatchLock(ctx context.Context, lock string, read func() (enough bool)) error {
	shares, sharesEnd := s.layout.Shares(lock)
	delays, delaysEnd := s.layout.LockAndShareDelays(lock)
	changed := make(chan struct{}, 1)
	var follower sync.WaitGroup
	defer follower.Wait()
	following, stop := context.WithCancel(ctx)
	defer stop()
	follower.Go(func() {
		check := func([]*clientv3.Event) bool {
			notify(changed)
			return false
		}
		etcdretry.New(s.client, etcdretry.Options{}).Follow(following, lockRecheck, check,
			etcdretry.WatchTarget{Key: s.layout.Record(lock), Options: []clientv3.OpOption{clientv3.WithPrefix()}},
			etcdretry.WatchTarget{Key: shares, Options: []clientv3.OpOption{clientv3.WithRange(sharesEnd)}},
			etcdretry.WatchTarget{Key: delays, Options: []clientv3.OpOption{clientv3.WithRange(delaysEnd)}},
			etcdretry.WatchTarget{Key: s.layout.Queue(lock), Options: []clientv3.OpOption{clientv3.WithPrefix()}})
	})
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		if read() {
			return nil
		}
	}
}

// notify sends a notification unless one is pending.
func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
