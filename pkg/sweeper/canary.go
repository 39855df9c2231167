package sweeper

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	canaryEvery   = time.Second
	canaryTimeout = 2 * time.Second
	// canaryValidFor is how long one success proves that etcd accepts writes: enough for two writes that barely meet
	// their timeout.
	canaryValidFor = 5 * time.Second
	// measureEvery is how often the clocks of etcd's members are measured; remeasureAfter, how soon again if none
	// answered.
	measureEvery   = time.Minute
	remeasureAfter = 10 * time.Second
	measureTimeout = 5 * time.Second
)

// canary is the result of writing our own presence record.
type canary struct {
	tried    bool
	works    bool          // the last write succeeded
	sent     time.Duration // when the last successful one was sent
	cause    string        // why the last write failed
	term     uint64
	revision int64 // the highest seen
	wentBack bool  // a lower one was seen later
	behind   bool  // a running unlocker claims a higher revision than our last success found
}

func (c *canary) provesWritable(mono time.Duration) bool {
	return c.works && mono-c.sent <= canaryValidFor
}

func (c *canary) noteRevision(revision int64) {
	if !c.wentBack {
		c.revision = max(c.revision, revision)
	}
}

// run writes the presence record every second until ctx ends. That proves that holders can write, too, and reveals
// interruptions of etcd and its return to an older state.
func (o *observer) run(ctx context.Context) {
	ticker := time.NewTicker(canaryEvery)
	defer ticker.Stop()
	for {
		o.announce(ctx)
		o.observe()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (o *observer) announce(ctx context.Context) {
	peers := o.cfg.Peers()
	sent := o.cfg.moment()
	presence, claimed := o.presence(peers, sent)
	try, cancel := context.WithTimeout(ctx, canaryTimeout)
	defer cancel()
	revision, term, err := o.cfg.Announce(try, presence)
	if ctx.Err() != nil {
		return
	}
	now := o.cfg.Clock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.canary.tried = true
		o.canary.works = false
		o.canary.cause = err.Error()
		o.recordGap(now, gapNoWrites, o.canary.cause)
		return
	}
	o.recordCanary(now, sent.Mono, presence.Revision, revision, term)
	o.compareRevision(now, claimed, revision)
}

// recordCanary records a successful canary. It compares with what was known when the canary was sent, because the view
// may have seen later revisions since. A lower raft term also means that etcd went back: it belongs to another cluster.
func (o *observer) recordCanary(now, sent time.Duration, highest, revision int64, term uint64) {
	c := &o.canary
	switch {
	case !c.tried:
		o.recordGap(now, gapStart, "")
	case !c.works:
		o.recordGap(now, gapWrites, "")
	case now-c.sent > canaryValidFor:
		o.recordGap(now, gapLate, "by "+(now-c.sent-canaryValidFor).Round(time.Millisecond).String())
	case term != c.term:
		o.recordGap(now, gapTerm, fmt.Sprintf("from %d to %d", c.term, term))
	}
	if !c.wentBack && (revision < highest || term < c.term) {
		o.cfg.Log.Error().Int64("revision", revision).Int64("highest_revision", highest).
			Uint64("raft_term", term).Uint64("last_raft_term", c.term).
			Msg("etcd went back to an older state: nothing is removed until this unlocker is restarted, which " +
				"confirms it")
		c.wentBack = true
	}
	c.noteRevision(revision)
	c.tried = true
	c.works = true
	c.cause = ""
	c.sent = sent
	c.term = term
}

// compareRevision compares the revision that the canary found with what other unlockers claimed to have seen before: if
// theirs is higher, etcd went back, perhaps before this process started. The claim ends with the process that makes it,
// so unlockers can be restarted one by one, and a nonsensical record counts only as long as something rewrites it.
func (o *observer) compareRevision(now time.Duration, claimed claim, revision int64) {
	behind := claimed.revision > revision
	switch {
	case behind && !o.canary.behind:
		o.cfg.Log.Error().Int64("revision", revision).Int64("highest_revision", claimed.revision).
			Str("peer", text.Visible(claimed.peer)).
			Msg("etcd went back to an older state: nothing is removed while an unlocker runs that saw a later one; " +
				"its restart confirms it")
	case !behind && o.canary.behind:
		o.recordGap(now, gapConfirmed, "")
	}
	o.canary.behind = behind
}

func (o *observer) presence(peers []metadata.Presence, now staleness.Moment) (metadata.Presence, claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clocks.setPeers(peers, o.cfg.ID, now.Mono)
	return metadata.Presence{
		ID: o.cfg.ID, Hostname: o.cfg.Hostname, Version: o.cfg.Version, Mode: string(o.cfg.Mode),
		StartedAt: metadata.Time{Time: o.started}, Now: metadata.Time{Time: now.Wall}, Revision: o.canary.revision,
		HeldBack: o.heldBack, RemovalPolicy: o.policy,
		LastGap:      metadata.Time{Time: now.Wall.Add(o.lastGap - now.Mono).Truncate(time.Second)},
		LastGapCause: o.gapCause,
	}, o.clocks.highestClaim()
}

// measureMembers measures the clocks of etcd's members until ctx ends.
func (o *observer) measureMembers(ctx context.Context) {
	for ctx.Err() == nil {
		rest := o.measureOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

func (o *observer) measureOnce(ctx context.Context) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	before := o.cfg.moment()
	offsets := o.cfg.Offsets(ctx)
	after := o.cfg.moment()
	if len(offsets) == 0 {
		return remeasureAfter
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clocks.setMembers(offsets, before, after)
	return measureEvery
}
