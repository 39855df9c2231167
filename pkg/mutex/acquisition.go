package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acquisition is one call that wants one lock. Its uuid becomes that of the hold, and changes when an outcome stayed
// unknown or a place in the queue was lost.
type acquisition struct {
	c       *Client
	claimer claimer
	lock    string
	set     settings
	draft   metadata.Draft // but for the times
	site    callSite       // of the call
	outer   *Lock          // the innermost hold under which it is made

	// What etcd answered last.
	seen    int64 // revision
	holders holders
	holder  metadata.Document // the oldest of them
	doubt   bool              // an earlier sending may still be committed, although there was an answer since

	queue    queuePlace
	reported Waiting // to OnWait
}

// newAcquisition checks what can be checked without etcd and makes the first bid.
func (c *Client) newAcquisition(name string, opts []Option) (*acquisition, bid, error) {
	if c.isClosed() {
		return nil, bid{}, ErrClosed
	}
	if err := metadata.CheckName(name); err != nil {
		return nil, bid{}, err
	}
	set, err := settle(c.opts.Owner, c.opts.Defaults, opts)
	if err == nil {
		err = set.kind.checkName(name)
	}
	if err != nil {
		return nil, bid{}, err
	}
	a := &acquisition{c: c, lock: name, set: set, draft: metadata.Draft{
		UUID: uuid.NewString(), Owner: set.owner, Hostname: c.opts.Hostname, PID: c.pid, Purpose: set.purpose,
		Client: c.about, Attributes: set.attributes, Backtrace: c.traces.take(set.backtraceDepth),
		Process: *c.opts.Process,
	}}
	if set.detached {
		a.draft.Process.Detached = true
	}
	a.claimer = newClaimer(a)
	a.site = callSiteOf(a.draft.Backtrace)
	b, err := a.bid()
	return a, b, err
}

// bid is what is sent to etcd to get the lock. Its deadlines count from before the first sending; a repetition has the
// same bytes.
type bid struct {
	moment // monotonic for the local deadline, wall for the record

	fields []metadata.Field
}

func (a *acquisition) bid() (bid, error) {
	b := bid{moment: a.c.moment()}
	a.draft.LockedAt = b.wall
	a.draft.AutoUnlockAt = b.wall.Add(a.set.autoUnlockAfter)
	a.draft.AlertAt = b.wall.Add(min(a.set.alertAfter, a.set.autoUnlockAfter))
	fields, err := a.draft.Fields()
	if err != nil {
		return b, err
	}
	b.fields = fields
	return b, nil
}

// propose sends a transaction with a bid for as long as the bid is fresh.
func (a *acquisition) propose(ctx context.Context, txn locktxn.Txn) (etcdretry.Answer, error) {
	began := time.Now()
	fresh := a.set.autoUnlockAfter / 3
	r, err := a.c.retry.SendFor(ctx, fresh, txn)
	a.doubt = a.doubt || r.Doubt
	if err != nil {
		if r.Doubt {
			a.abandon()
		}
		if time.Since(began) >= fresh && ctx.Err() == nil {
			err = errStale
		}
	}
	return r, err
}

// abandon leaves a uuid whose sendings may still be committed to the background and goes on with a new one.
func (a *acquisition) abandon() {
	lease := a.queue.lease
	if lease != nil {
		a.c.leaveLater(a.lock, a.draft.UUID)
	}
	a.c.cancelLater(a.set.kind, a.lock, a.draft.UUID)
	if lease != nil {
		a.c.drop(lease)
	}
	a.queue = queuePlace{}
	a.doubt = false
	a.draft.UUID = uuid.NewString()
}

// abandonInDoubt abandons a uuid of which a sending was not answered.
func (a *acquisition) abandonInDoubt() {
	if a.doubt {
		a.abandon()
	}
}

// heldError names the holder by the last answer.
func (a *acquisition) heldError() *HeldError {
	held := &HeldError{Lock: a.lock, Holder: a.holder, At: a.c.wall(), Where: a.c.holds.where(a.holder.UUID)}
	if a.set.kind.shared() {
		held.Kind = a.set.kind.name
		held.Holders = a.holders.all()
		held.Limit = a.set.kind.limit
		held.Weight = a.set.kind.weight
		held.Free = a.holders.free(held.Limit)
	}
	return held
}

// explain says what was tried, where the error does not say it itself.
func (a *acquisition) explain(err error) error {
	if _, isHeld := errors.AsType[*HeldError](err); err == nil || isHeld || errors.Is(err, ErrCondition) ||
		errors.Is(err, ErrNotHeld) {
		return err
	}
	return fmt.Errorf("lock %q: %w", a.lock, err)
}
