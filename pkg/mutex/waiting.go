package mutex

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// reportEvery is the least time between two requests of a waiter with [OnWait] or [AskToFinish] for the state of the
// queue.
const reportEvery = time.Second

// A refresh reads at most this many of the tickets ahead: the first in the queue, and some of the others in rotation.
const (
	nearTickets = 4
	farTickets  = 4
)

// reportWait calls the callback of [OnWait] whenever the holder or the position has changed since its last call, and
// asks the holders if the wait is [AskToFinish], until stop is called. No call is running when stop returns.
func (a *acquisition) reportWait(ctx context.Context) (stop func()) {
	if a.set.onWait == nil && a.set.askToFinish == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	kind := a.set.kind
	v := &waitStatus{c: a.c, position: a.queue.position, kind: kind, known: kind.knownHolders(a.lock, holders{})}
	v.position.Lock = a.lock
	var done sync.WaitGroup
	done.Go(func() {
		for again := true; again; again = etcdretry.Sleep(ctx, reportEvery+rand.N(reportEvery/2)) {
			w, err := v.refresh(ctx)
			if err == nil && a.set.askToFinish != "" {
				a.askHolders(ctx, w)
			}
			if err != nil || !differs(&w, &a.reported) || ctx.Err() != nil || a.set.onWait == nil {
				continue
			}
			a.reported = w
			a.set.onWait(&w)
		}
	})
	return func() { cancel(); done.Wait() }
}

// waitStatus is what a waiter with [OnWait] or [AskToFinish] knows of the holders and of the tickets ahead. It reads
// the queue once. A refresh reads whether the holders have changed, and a few tickets, so that its cost does not grow
// with the queue. When a waiter holds the lock, all tickets before its own are gone; a waiter far ahead that gave up is
// noticed when the rotation reaches its ticket.
type waitStatus struct {
	c        *Client
	kind     kind
	position locktxn.Position // its Revision is 0 outside the queue

	listed bool                 // the tickets ahead are known
	known  locktxn.KnownHolders // of the holders: none before the first refresh
	keys   int                  // of shares, at that revision
	delays int                  // of delays, at that revision
	status HeldError

	overdue overdueCheck
	ahead   []string // tickets before it that may still exist, the oldest first
	far     int      // which of the far ones is read next
}

// refresh reads who holds the lock and who is ahead.
func (v *waitStatus) refresh(ctx context.Context) (HeldError, error) {
	if !v.listed && v.position.Revision != 0 {
		if err := v.listTickets(ctx); err != nil {
			return HeldError{}, err
		}
	}
	probes := v.probes()
	r, err := v.c.retry.Send(ctx, locktxn.ReadChanges(v.c.layout, v.known, probes))
	if err != nil {
		return HeldError{}, err
	}
	tickets := len(r.Responses) - len(probes)
	switch {
	case !r.Succeeded:
		v.setHolders(r)
	case int(r.Keys(0).Count) != v.keys, int(r.Keys(1).Count) != v.delays:
		// a share was released, or a delay is over
		if r, err := v.c.retry.Send(ctx, locktxn.ReadHolders(v.c.layout, v.kind.claim(v.position.Lock))); err == nil {
			v.setHolders(r)
		}
	}
	for i, uuid := range probes {
		if r.Keys(tickets+i).Count == 0 {
			v.ahead = slices.DeleteFunc(v.ahead, func(other string) bool { return other == uuid })
		}
	}
	v.updateOverdue(ctx)
	v.status.At = v.c.wall()
	if v.position.Revision != 0 {
		v.status.Position = len(v.ahead) + 1
	}
	return v.status, nil
}

// updateOverdue finds out whether anything removes a hold whose deadline has passed. A refresh does not notice that the
// holder extended it.
func (v *waitStatus) updateOverdue(ctx context.Context) {
	due := earliestAutoUnlock(v.status.Holders, v.status.Holder)
	if !due.IsZero() && !due.After(v.c.wall()) && !due.Equal(v.overdue.due) {
		r, err := v.c.retry.Send(ctx, locktxn.ReadHolders(v.c.layout, v.kind.claim(v.position.Lock)))
		if err != nil {
			return
		}
		v.setHolders(r)
	}
	v.status.NoUnlocker = v.overdue.nothingRemoves(ctx, v.c, earliestAutoUnlock(v.status.Holders, v.status.Holder))
}

func (v *waitStatus) listTickets(ctx context.Context) error {
	r, err := v.c.retry.Send(ctx, locktxn.ReadTicketsAhead(v.c.layout, v.position))
	if err != nil {
		return err
	}
	for _, kv := range slices.Backward(r.Keys(0).Kvs) {
		v.ahead = append(v.ahead, v.c.layout.Parse(string(kv.Key)).ID)
	}
	v.listed = true
	return nil
}

// probes returns the tickets that the next refresh reads.
func (v *waitStatus) probes() []string {
	near := min(nearTickets, len(v.ahead))
	probes := slices.Clone(v.ahead[:near])
	far := v.ahead[near:]
	for range min(farTickets, len(far)) {
		v.far++
		probes = append(probes, far[v.far%len(far)])
	}
	return probes
}

// setHolders stores the holders from the first operations of an answer.
func (v *waitStatus) setHolders(r etcdretry.Response) {
	h := readHolders(v.c.layout, v.position.Lock, v.kind, r, 0, locktxn.HolderReads)
	v.known = v.kind.knownHolders(v.position.Lock, h)
	position := v.status.Position
	v.status = *v.c.heldError(v.position.Lock, v.kind, h.oldest(), &h)
	v.status.Position = position
	v.keys = len(r.Keys(1).Kvs)
	v.delays = len(r.Keys(2).Kvs)
	for _, holder := range append(v.status.Holders, v.status.Holder) {
		if i := slices.Index(v.ahead, holder.UUID); i >= 0 {
			v.ahead = v.ahead[i+1:]
		}
	}
}

// differs reports whether there is more to report than in an earlier state.
func differs(w, reported *HeldError) bool {
	return w.Position != reported.Position || w.Holder.Token != reported.Holder.Token ||
		delayRevision(w.Delay) != delayRevision(reported.Delay) || !sameHolds(w.Holders, reported.Holders) ||
		w.NoUnlocker != reported.NoUnlocker || reported.At.IsZero()
}

func delayRevision(d *metadata.LockDelay) int64 {
	if d == nil {
		return 0
	}
	return d.Revision
}

func sameHolds(a, b []metadata.FullRecord) bool {
	return slices.EqualFunc(a, b, func(x, y metadata.FullRecord) bool { return x.Token == y.Token })
}

// askHolders asks each present holder that is in the way to finish, once.
func (a *acquisition) askHolders(ctx context.Context, w HeldError) {
	present := w.Holders
	if len(present) == 0 && w.Holder.Token != 0 {
		present = []metadata.FullRecord{w.Holder}
	}
	a.asked = slices.DeleteFunc(a.asked, func(uuid string) bool {
		return !slices.ContainsFunc(present, func(d metadata.FullRecord) bool { return d.UUID == uuid })
	})
	ctx, cancel := context.WithTimeout(ctx, a.c.opts.RequestTimeout)
	defer cancel()
	for _, d := range a.set.kind.blockers(a.lock, present) {
		if !slices.Contains(a.asked, d.UUID) && a.askHolder(ctx, &d) {
			a.asked = append(a.asked, d.UUID)
		}
	}
}

// askHolder asks one holder to finish. It reports whether that is settled: etcd accepted or refused the request, or the
// holder had already been asked.
func (a *acquisition) askHolder(ctx context.Context, d *metadata.FullRecord) bool {
	r := metadata.FinishRequest{UUID: d.UUID, Token: d.Token, By: a.draft.Owner,
		Source: metadata.SourceWaiter, At: metadata.Time{Time: a.c.wall()}, Reason: a.set.askToFinish}
	shorten(&r)
	_, err := a.c.retry.Send(ctx, locktxn.PutFinishRequestOnce(a.c.layout, d.Name, r))
	if err == nil {
		return true
	}
	final := locktxn.IsRefused(err) || locktxn.IsNoSpace(err)
	if final {
		a.c.log(slog.LevelWarn, "the holder was not asked to finish", slog.String("lock", d.Name),
			slog.String("uuid", d.UUID), slog.Any("error", err))
	}
	return final
}

// shorten clips the texts of a request that its readers would refuse as too large.
func shorten(r *metadata.FinishRequest) {
	for limit := metadata.MaxTextBytes; len(protocol.Marshal(*r)) > lockrecord.MaxDocumentBytes; limit /= 2 {
		r.By = text.Clip(r.By, limit)
		r.Reason = text.Clip(r.Reason, limit)
	}
}

// overdueCheck finds out whether anything removes a hold whose deadline has passed.
type overdueCheck struct {
	due        time.Time // the deadline for which it checked
	checkedAt  time.Time
	noUnlocker bool
}

// overdueRecheck is the least time between two checks of the same deadline.
const overdueRecheck = time.Minute

// nothingRemoves reports whether an auto-unlock was due and no unlocker is running. It is false if etcd does not say.
func (o *overdueCheck) nothingRemoves(ctx context.Context, c *Client, due time.Time) bool {
	now := c.wall()
	if due.IsZero() || due.After(now) {
		return false
	}
	if !due.Equal(o.due) || now.Sub(o.checkedAt) > overdueRecheck {
		ctx, cancel := context.WithTimeout(ctx, explainTimeout)
		defer cancel()
		r, err := c.retry.Send(ctx, locktxn.ReadUnlockers(c.layout))
		*o = overdueCheck{due: due, checkedAt: now, noUnlocker: err == nil &&
			!slices.ContainsFunc(r.Keys(0).Kvs, hasLease)}
	}
	return o.noUnlocker
}

// hasLease reports whether a key is leased: a presence that is not says nothing.
func hasLease(kv *mvccpb.KeyValue) bool { return kv.Lease != 0 }

// earliestAutoUnlock returns the earliest time of auto-unlock of these holds and more; zero if none is known.
func earliestAutoUnlock(holds []metadata.FullRecord, more ...metadata.FullRecord) (first time.Time) {
	for _, r := range slices.Concat(holds, more) {
		first = protocol.Earlier(first, r.AutoUnlockAt)
	}
	return first
}

// warnOverdue logs, once, that nothing removes an overdue hold for which this acquisition waits.
func (a *acquisition) warnOverdue(ctx context.Context) {
	warned := a.overdue.noUnlocker
	if a.overdue.nothingRemoves(ctx, a.c, earliestAutoUnlock(a.holders.all())) && !warned {
		a.c.log(slog.LevelWarn, "no unlocker is running, so nothing removes an overdue lock",
			slog.String("lock", a.lock), slog.String("owner", plain(a.holder.Owner)))
	}
}
