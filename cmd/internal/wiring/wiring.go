// Package wiring connects packages that both daemons connect in the same way.
package wiring

import (
	"cmp"
	"errors"
	"iter"
	"slices"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/diagnosis/inconsistent"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Fate returns what the running unlockers do to stale locks, as far as the view knows them.
func Fate(v *lockview.View) fate.Fate { return fate.Of(presences(v)) }

func presences(v *lockview.View) []metadata.Presence {
	running := v.Unlockers()
	all := make([]metadata.Presence, len(running))
	for i := range running {
		all[i] = running[i].Presence
	}
	return all
}

// Metrics connects the metrics to the view. The program chooses which locks get series of their own, and says by which
// policy they are judged.
func Metrics(namespace string, policy func() staleness.Policy, v *lockview.View) lockmetrics.Config {
	return lockmetrics.Config{
		Namespace: namespace, Policy: policy,
		Locks:  func() iter.Seq[*metadata.Record] { return slices.Values(v.Shown()) },
		Survey: func(now staleness.Moment) staleness.Survey { return v.SurveyShown(policy(), now) },
		Queues: v.Queues, Clock: v.Clock, Deadlocks: Deadlocks(v),
		Unclaimed:     Unclaimed(v),
		Delays:        func() int { return len(v.Delays()) },
		Inconsistent:  func() []inconsistent.Lock { return Inconsistent(v) },
		Disagreements: func() int { return len(fate.Disagreements(presences(v))) },
		Sync: func() lockmetrics.Sync {
			f := v.Fresh()
			return lockmetrics.Sync{Listed: !f.Heard.IsZero(), Current: f.Synced, Revision: f.Highest, Heard: f.Heard}
		},
		Activity: func() lockmetrics.Activity { return activity(v.Stats()) },
	}
}

// Inconsistent returns what no client that follows the protocol leaves in etcd.
func Inconsistent(v *lockview.View) []inconsistent.Lock {
	return inconsistent.Find(func(yield func(string, map[string]any) bool) {
		for _, r := range v.Locks() {
			if r.Token != 0 && !yield(r.Name, r.Attributes) {
				return
			}
		}
	}, v.Delays())
}

func activity(s lockview.Stats) lockmetrics.Activity {
	return lockmetrics.Activity{
		Resyncs: s.Resyncs, Restarts: s.WatchRestarts, MetadataErrors: texts(s.MetadataErrors),
		Events: map[string]uint64{"put": s.Puts, "delete": s.Deletes},
	}
}

func texts(counts map[metadata.Reason]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(counts))
	for reason, n := range counts {
		all[string(reason)] = n
	}
	return all
}

// Trouble returns what finds out why etcd cannot be used while the view is not current.
func Trouble(etcd *clientv3.Client, l protocol.Layout, v *lockview.View, log zerolog.Logger) *etcdconn.Trouble {
	return &etcdconn.Trouble{Etcd: etcd, Prefix: l.Prefix(), Well: func() bool { return v.Fresh().Synced }, Log: log}
}

// Ready adds the condition "etcd" to a program's readiness: the view is current, as metrics and pages show it. Before
// the first list it holds, because the program has a condition of its own for that. To keep a program that still serves
// the last known state in rotation while etcd is away, probe with exclude=etcd.
func Ready(r *daemon.Readiness, v *lockview.View, t *etcdconn.Trouble) {
	r.Add("etcd", func() error {
		if f := v.Fresh(); !f.Synced && !f.Heard.IsZero() {
			return errors.New("the view of the locks is not current: " + Cause(f, t))
		}
		return nil
	})
}

// Cause returns why the view is not current, from the best source; empty if it is.
func Cause(f protocol.Freshness, t *etcdconn.Trouble) string {
	if f.Synced {
		return ""
	}
	return cmp.Or(t.Cause(), f.Cause)
}
