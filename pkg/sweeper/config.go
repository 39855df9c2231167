package sweeper

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Mode is what a sweeper does with a lock that may be removed. The presence record announces it.
type Mode string

// The modes.
const (
	AlertOnly  Mode = "alert-only"  // leaves it to the operator, who is alerted
	AutoUnlock Mode = "auto-unlock" // removes it
	DryRun     Mode = "dry-run"     // logs once that it would remove it
)

// Config connects a sweeper to its environment. All functions are required, and may be called concurrently.
type Config struct {
	ID       string // of this process; unique, also across its restarts
	Hostname string
	Version  string
	Mode     Mode
	Policy   staleness.Policy
	// Exclude are globs of lock names that are never removed: * matches any text, including slashes, and ? any one
	// character.
	Exclude []string

	// Locks iterates over the records of the locks held now. The sweeper neither changes nor keeps them: each may be
	// overwritten by the next one.
	Locks func() iter.Seq[*metadata.Record]
	// Lock returns the current record of one lock, or nil.
	Lock func(name string) *metadata.Record
	// Clock is the monotonic clock of [metadata.Seen].
	Clock func() time.Duration
	// Fresh returns how current the view behind Locks and Lock is.
	Fresh func() protocol.Freshness
	// Announce writes the presence record and returns the revision and the raft term of the answer. It is the canary:
	// its success proves that holders can extend.
	Announce func(context.Context, metadata.Presence) (revision int64, raftTerm uint64, err error)
	// Remove removes each hold if it is still the one in the record, in one commit. The errors are in the order of the
	// removals: nil = removed, [metadata.ErrChanged] = not removed because the hold changed, any other = unknown.
	Remove func(context.Context, []lockrecord.Removal) []error

	// Peers returns the other unlockers. This one may be among them. One whose record was not watched arriving does not
	// count.
	Peers func() []metadata.Presence
	// Offsets asks the members of etcd for the time and returns how far each clock is ahead of ours.
	Offsets func(context.Context) []time.Duration
	// Queues returns the waiters by lock.
	Queues func() map[string][]metadata.Waiter
	// RemoveTicket removes the ticket if its create revision is still the waiter's Revision; otherwise it returns
	// [metadata.ErrChanged].
	RemoveTicket func(context.Context, metadata.Waiter) error

	Attributes []string         // of a removed lock that become labels of the metric of removal times
	Now        func() time.Time // the wall clock
	Log        zerolog.Logger
}

// DefaultConfig returns what applies unless configured otherwise. Nothing is connected, and the mode is to be chosen.
func DefaultConfig() Config { return Config{Policy: staleness.DefaultPolicy()} }

func (c *Config) check() error {
	if !slices.Contains([]Mode{AlertOnly, AutoUnlock, DryRun}, c.Mode) {
		return fmt.Errorf("Mode is %q: want %s, %s or %s", c.Mode, AlertOnly, AutoUnlock, DryRun)
	}
	if err := lockrecord.CheckExclude(c.Exclude); err != nil {
		return fmt.Errorf("the names to exclude: %w", err)
	}
	return c.Policy.Check()
}

// moment reads both clocks.
func (c *Config) moment() staleness.Moment {
	return staleness.Moment{Wall: c.Now().Round(0).UTC(), Mono: c.Clock()}
}
