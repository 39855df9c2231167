package sweeper

import (
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	// freshFor is how long the view counts as fresh after a sign of life from etcd.
	freshFor = 10 * time.Second
	// maxFirstList is how long the first list may take before it is logged as a gap of its own.
	maxFirstList = 10 * time.Second
)

// The causes of a gap.
const (
	gapStart      = "the process started"
	gapNoWrites   = "etcd takes no writes"
	gapWrites     = "etcd takes writes again"
	gapLate       = "the canary was late"
	gapTerm       = "etcd's raft term changed"
	gapJump       = "the wall clock jumped"
	gapIncomplete = "the view of the locks is incomplete"
	gapStale      = "etcd was silent for a while"
	gapConfirmed  = "no running unlocker has seen a later state of etcd"
)

// observer knows whether this process can be sure that it has seen what holders did.
type observer struct {
	cfg     *Config
	started time.Time
	policy  *metadata.RemovalPolicy // as the presence record announces it
	changed chan struct{}           // receives a value when more removals may be allowed

	mu          sync.Mutex
	clocks      clocks
	last        staleness.Moment // of the last observation
	lastGap     time.Duration
	gapCause    string
	inGap       bool // the last observation was in a gap
	startedMono time.Duration
	synced      bool // the view was complete at the last observation
	wallClock   staleness.ClockStatus
	offset      time.Duration // of our wall clock to the others
	allowed     time.Duration // since when the conditions have allowed what they allow now
	jumps       int64
	canary      canary
	heldBack    []string // the rules that hold back removals, for the presence record
}

func newObserver(cfg *Config) *observer {
	now := cfg.moment()
	return &observer{
		cfg: cfg, started: now.Wall, policy: cfg.Policy.ToPresence(cfg.Exclude), changed: make(chan struct{}, 1),
		startedMono: now.Mono, last: now, lastGap: now.Mono, gapCause: gapStart, inGap: true,
		wallClock: staleness.ClockUnverified,
	}
}

// observe reads the clocks and returns the current conditions. It records gaps that nothing else notices.
func (o *observer) observe() (staleness.Conditions, staleness.Moment) {
	fresh := o.cfg.Fresh()
	silence := time.Since(fresh.HeardAt)
	now := o.cfg.moment()
	o.mu.Lock()
	defer o.mu.Unlock()
	if moved := jump(o.last, now); moved.Abs() > jumpThreshold {
		o.jumps++
		o.recordGap(now.Mono, gapJump, "by "+moved.Round(time.Millisecond).String())
	}
	o.last = now
	c := staleness.Conditions{
		Writable:      o.canary.provesWritable(now.Mono),
		Fresh:         fresh.Synced && silence <= freshFor,
		NeverWentBack: !o.canary.wentBack && !o.canary.behind,
	}
	c.WallClock, o.offset = o.clocks.verify(now, o.cfg.Policy.ClockSkew)
	switch {
	case !o.canary.tried:
		o.recordGap(now.Mono, gapStart, "")
	case !c.Writable && o.canary.works: // this process was stopped, or its write hangs: that proves nothing about etcd
		o.recordGap(now.Mono, gapLate, "")
	case !c.Writable:
		o.recordGap(now.Mono, gapNoWrites, o.canary.cause)
	case !fresh.Synced:
		o.recordGap(now.Mono, gapIncomplete, "")
	case !c.Fresh:
		o.recordGap(now.Mono, gapStale, silence.Round(time.Second).String())
	case now.Mono > o.lastGap && o.inGap:
		o.cfg.Log.Info().Str("cause", o.gapCause).Msg("the gap is over")
		o.inGap = false
	}
	o.updateAllowed(c, now.Mono)
	if fresh.Synced && !o.synced {
		o.wake()
	}
	o.synced = fresh.Synced
	o.canary.noteRevision(fresh.Revision)
	c.LastGap = o.lastGap
	return c, now
}

// recordGap records a gap that lasts until now. It is logged when it begins, and when its cause changes. The start of a
// process is not logged, unless something keeps it from observing.
func (o *observer) recordGap(mono time.Duration, cause, detail string) {
	if cause == gapIncomplete && o.gapCause == gapStart && mono-o.startedMono < maxFirstList {
		cause = gapStart
	}
	if !o.inGap || o.gapCause != cause {
		event := o.cfg.Log.Warn().Str("cause", cause).Stringer("min_warning", o.cfg.Policy.MinWarning)
		if detail != "" {
			event.Str("detail", text.Visible(detail))
		}
		event.Msg("gap: the minimum warning of all locks starts over")
	}
	o.lastGap = max(o.lastGap, mono)
	o.gapCause = cause
	o.inGap = true
}

// updateAllowed updates since when the conditions have allowed what they allow now, and wakes the sweep when they may
// allow more.
func (o *observer) updateAllowed(c staleness.Conditions, mono time.Duration) {
	changed := o.wallClock != c.WallClock
	if changed {
		event := o.cfg.Log.Info()
		if c.WallClock != staleness.ClockVerified {
			event = o.cfg.Log.Warn()
		}
		event.Str("wall_clock", string(c.WallClock)).Stringer("offset",
			o.offset.Round(time.Millisecond)).Msg("the wall clock was compared with others")
		o.wake()
	}
	if changed || c.WallClock == staleness.ClockWrong || !c.Writable || !c.Fresh || !c.NeverWentBack {
		o.allowed = mono
	}
	o.wallClock = c.WallClock
}

func (o *observer) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}
