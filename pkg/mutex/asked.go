package mutex

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
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

// AskedError says that work ended early because somebody asked for it.
type AskedError struct {
	Lock    string // its name
	Request metadata.Request
	At      time.Time // when the work ended, wall clock
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

// Error is one line, in which text from outside is made harmless.
func (e *AskedError) Error() string {
	by := describeRequest(&e.Request, e.At)
	return fmt.Sprintf("the holder of lock %q was asked to finish by %s", clip(e.Lock), by)
}

// describeRequest says who asks, when and why: "ann 5 seconds ago: the deploy waits".
func describeRequest(r *metadata.Request, now time.Time) string {
	who := or(plain(r.By), "somebody unknown")
	if r.Source == metadata.SourceWaiter {
		who += ", who waits for it,"
	}
	return who + because(r.At.Time, r.Reason, now)
}

// because is when something was done, and why.
func because(at time.Time, reason string, now time.Time) string {
	when := ""
	if !at.IsZero() {
		when = " " + text.RelativeWords(at, now)
	}
	return when + ": " + or(plain(reason), "no reason given")
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
