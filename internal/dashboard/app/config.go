package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Operator carries out the actions of operators: [*lockstore.Store] is one.
type Operator interface {
	// Perform performs v on the hold or lock delay in on, and audits it, in one transaction. Its error is
	// [metadata.ErrChanged] if that has ended, a [*protocol.RefusedError] if v cannot be applied to it, and
	// [metadata.ErrOutcomeUnknown] if the outcome is unknown; after any other error nothing was done.
	Perform(ctx context.Context, v protocol.Verb, on protocol.ActionTarget, a protocol.Action) (protocol.Outcome, error)
}

// View is what is known without asking etcd, beside the locks: [*lockview.View] is one.
type View interface {
	// Unlockers returns the unlockers that are alive.
	Unlockers() []metadata.Presence
	// Foreign returns some of the keys below the prefix that fit no layout, how many there are, and how many of them
	// contend for locks of other libraries.
	Foreign() (sample []string, total, others int)
	// Fresh returns how current the view is, locks included.
	Fresh() protocol.Freshness
}

// Store reads from etcd: [*lockstore.Store] is one.
type Store interface {
	// ReadRecord reads a lock's record and returns the revision at which it was read. Without Fields, there is none.
	ReadRecord(ctx context.Context, lock string) (metadata.FullRecord, int64, error)
	// ReadEnding reads the ending of a hold that its holder did not release; nil if none is recorded.
	ReadEnding(ctx context.Context, uuid string) (*metadata.Ending, error)
	etcdread.HistoryReader
}

// Config is the configuration of the dashboard: data sources, access, appearance.
type Config struct {
	View      View
	Snapshots *locks.Snapshots // of the same view
	Store     Store
	// Operator performs the actions of operators. Enabled are the permissions of those that are switched on.
	Operator Operator
	Enabled  []access.Permission

	// LeasedProblems returns why the locks of other libraries are not current, in sentences.
	LeasedProblems func() []string
	// Members returns what each endpoint of etcd last reported about itself; empty if that is not known.
	Members func() []Member
	// Certificates returns the certificates that the dashboard depends on.
	Certificates func() []Certificate
	// Alarm returns an alarm that etcd has raised, in a sentence without its full stop; empty if none is known.
	Alarm func() string
	// Relists counts how often the view was read anew because the watch was interrupted, so that holds may have begun
	// and ended unseen.
	Relists func() uint64
	// Explain names the class of an error of etcd for people, such as "timeout" or "permission denied".
	Explain func(error) string
	// Now is the wall clock.
	Now func() time.Time

	Access access.Config // who callers are and what they may do
	Log    zerolog.Logger

	ExternalURL string // under which browsers reach the dashboard; its path is the prefix of every link
	// more names of hosts under which it is reached, besides that of ExternalURL, localhost and addresses
	Hosts          []string
	RoutePrefix    string // under which requests arrive, where a proxy changes the path; empty: as in ExternalURL
	Environment    string // such as "prod-eu"; colours the band on top
	Version        string
	Layout         protocol.Layout // of the keys in etcd, for status and hints
	Endpoints      []string        // of etcd, as people may see them
	Settings       []Setting       // flags that are not at their default, without secrets
	HideBacktraces bool
	MinRefresh     time.Duration           // the shortest interval at which pages refresh
	Links          []Link                  // on the page of a lock
	Alertmanager   string                  // its address for people, where locks can be silenced; empty: not known
	Sources        []stacktrace.SourceLink // of the frames of backtraces
	HSTS           time.Duration           // how long browsers must use TLS after a first visit by TLS; 0 = not sent
}

// Member is an endpoint of etcd.
type Member struct {
	Endpoint    string // as people may see it
	Role        string // leader, follower, learner; empty when it did not answer
	Version     string
	Size, Quota int64 // bytes of its store, and how many it may grow to; 0 = not known
	Problem     string
}

// Certificate is one that connections to etcd or browsers depend on.
type Certificate struct {
	Name      string
	ExpiresAt time.Time
	Expiry    string // the same as part of a sentence
	IsDue     bool   // it should have been renewed by now
}

// StoreSize returns the size of the store as text; empty if it is unknown.
func (m Member) StoreSize() string {
	megabytes := func(n int64) string { return text.Thousands(int((n+1<<20-1)>>20)) + " MiB" }
	switch {
	case m.Size <= 0:
		return ""
	case m.Quota <= 0:
		return megabytes(m.Size)
	}
	return megabytes(m.Size) + " of " + megabytes(m.Quota)
}

type Setting struct {
	Name, Value string
	Public      bool // for every viewer; others are for those who see the audit trail
}

// Check fills the gaps and refuses what cannot work.
func (c *Config) Check() error {
	if c.MinRefresh > time.Minute {
		return fmt.Errorf("dashboard: pages that refresh every %v at most are not possible: from 0 to 1m", c.MinRefresh)
	}
	if err := cmp.Or(CheckBaseURL("the address of Alertmanager", c.Alertmanager),
		c.Access.Check(c.Enabled)); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	return nil
}

func (c *Config) IsEnabled(v protocol.Verb) bool {
	return slices.Contains(c.Enabled, access.Permission(v.Info().Permission))
}
