package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// maxUnlockers is how many presence records are looked at: more than any installation runs.
const maxUnlockers = 100

// presence is the presence record of an unlocker, which may be over or forged.
type presence struct {
	metadata.Presence
	lease int64
}

// running returns the unlockers among these that run: those whose records have a lease that nobody who is gone could
// have left behind.
func (s *session) running(ctx context.Context, announced []presence) ([]metadata.Presence, error) {
	var all []metadata.Presence
	for _, p := range announced[:min(len(announced), maxUnlockers)] {
		request, cancel := s.request(ctx)
		granted, err := s.store.Granted(request, p.lease)
		cancel()
		if err != nil {
			return nil, s.explain(ctx, "look at the leases of the unlockers", err)
		}
		if 0 < granted && granted <= protocol.PresenceTTL {
			all = append(all, p.Presence)
		}
	}
	return all, nil
}

// fate reads what the unlockers do to stale locks, for commands that look at one lock.
func (s *session) fate(ctx context.Context) (fate.Fate, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	var announced []presence
	err := s.store.ListPrefix(request, s.layout.Unlockers(), 0, func(kv protocol.KV) {
		if p, ok := announcedBy(s.layout.Parse(kv.Key).ID, kv); ok {
			announced = append(announced, p)
		}
	})
	if err != nil {
		return fate.Fate{}, s.explain(ctx, "read the unlockers", err)
	}
	running, err := s.running(ctx, announced)
	return fate.Of(running), err
}

// fateIn is what the unlockers do that a view knows.
func fateIn(view *lockview.View) fate.Fate {
	var running []metadata.Presence
	for _, u := range view.Unlockers() {
		running = append(running, u.Presence)
	}
	return fate.Of(running)
}

// announcedBy reads a presence record. One without a lease would outlive its unlocker, so it proves nothing.
func announcedBy(id string, kv protocol.KV) (presence, bool) {
	p := protocol.ReadPresence(id, kv.Value)
	if p == nil || kv.Lease == 0 {
		return presence{}, false
	}
	return presence{*p, kv.Lease}, true
}

// judgeBy judges the lock by our own clock, and by what the unlockers publish. Defaults for records without readable
// deadlines count from when an unlocker saw the lock, which is not known here, so such a lock is malformed. The grace
// of abandoned locks is counted from when the witness wrote its statement.
func judgeBy(p staleness.Policy, r *metadata.Record, now time.Time) staleness.Verdict {
	p.DefaultAlertAfter = 0
	p.DefaultAutoUnlockAfter = 0
	return staleness.Judge(stated(r, now), p, staleness.Moment{Wall: now})
}

// stated is the record as seen by somebody whose monotonic clock shows 0 now and who saw the statement about it when
// the witness wrote it.
func stated(r *metadata.Record, now time.Time) *metadata.Record {
	if r.Death == nil || r.Death.At.IsZero() {
		return r
	}
	death := *r.Death
	death.Seen = min(0, death.At.Sub(now))
	seen := *r
	seen.Death = &death
	return &seen
}

// fateOf says what the unlockers do to the lock that needs saying; empty if they remove it at its deadline.
func fateOf(f *fate.Fate, r *metadata.Record) string {
	abandoned := r.Proven()
	switch {
	case f == nil || r.Misplaced:
		return ""
	case f.Unlockers == 0:
		return "none has announced itself: nothing is removed"
	case !f.Removes:
		return "only watch (" + text.Visible(f.Watching) + "): nothing is removed"
	case f.Excludes(r.Name):
		return "never remove it, by its name (sweep.exclude)"
	case abandoned && f.Policy.UnlockAbandoned:
		return fmt.Sprintf("remove it %v after they saw the proof", f.Policy.AbandonedGrace)
	case abandoned && !f.Known():
		return "whether they remove it now " + unknownFate(f)
	case abandoned:
		return "only report it: sweep.abandoned is report"
	}
	return ""
}

// unknownFate says why it is not known what the unlockers decide.
func unknownFate(f *fate.Fate) string {
	if len(f.Silent) == 1 {
		return "is not known: " + fate.Names(f.Silent) + " does not publish its policy"
	}
	return "is not known: " + fate.Names(f.Silent) + " do not publish their policy"
}

// ofAbandoned says what becomes of abandoned locks.
func ofAbandoned(f *fate.Fate) string {
	switch {
	case f.Unlockers == 0:
		return "no unlocker has announced itself, so nothing removes abandoned locks"
	case !f.Removes:
		return "the unlockers only watch (" + text.Visible(f.Watching) + "), so nothing removes abandoned locks"
	case f.Policy.UnlockAbandoned:
		return fmt.Sprintf("the unlockers remove abandoned locks %v after they saw the proof", f.Policy.AbandonedGrace)
	case !f.Known():
		return "whether the unlockers remove abandoned locks " + unknownFate(f)
	}
	return "the unlockers only report abandoned locks, until their deadlines"
}
