package unlocker

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/internal/witness/pod"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// namespace is the prefix of the metrics.
const namespace = "unlocker"

type components struct {
	store   *lockstore.Store
	view    *lockview.View
	others  *etcdlocks.View // the locks of other libraries
	health  *etcdconn.HealthMonitor
	faults  *etcdconn.FaultMonitor
	metrics *lockmetrics.Collector
	config  sweeper.Config
	sweeper *sweeper.Sweeper
	pods    *pod.Witness // nil if not configured

	writeRefusal atomic.Pointer[string] // why etcd refused our last write; nil if it was accepted
}

// wire creates the components, and connects each to the others that it needs.
func wire(o options, etcd *clientv3.Client, log zerolog.Logger) (*components, error) {
	layout := *o.locks
	r := &components{
		store:  lockstore.New(etcd, layout, lockstore.WithLog(log), lockstore.WithRetention(o.historyRetention)),
		health: etcdconn.NewHealthMonitor(etcd, o.etcd.RequestTimeout, log),
	}
	r.faults = &etcdconn.FaultMonitor{Etcd: etcd, Prefix: layout.Prefix(), Log: log,
		IsUsable: func() bool { return r.view.Fresh().Synced }}
	r.others = etcdlocks.New(o.others, layout, r.store, func(*locks.Row, *metadata.Ending) {}, log)
	r.view = lockview.New(layout, lockview.Source{List: r.store.ListKeys, Watch: r.store.Watch,
		Ending: r.store.ReadEnding},
		lockview.Options{
			OnEnded:      func(lock *metadata.Record, ending *metadata.Ending) { r.metrics.Ended(lock, ending) },
			OnAcquired:   func(lock *metadata.Record, w metadata.Waiter) { r.metrics.Acquired(lock, w) },
			OnHolderDied: func(*metadata.Record) { r.sweeper.HolderDied() },
			Fault:        r.faults.Fault,
			Leased:       r.others.Rows,
			Explain:      etcdconn.Explain, Log: log,
		})
	snapshots := r.view.Snapshots(func() diagnosis.CombinedPolicy {
		// states by our own policy; what resolves itself by all unlockers, as on the dashboard
		running := diagnosis.CombinePolicies(r.view.Unlockers())
		running.Policy = o.sweeper.Policy
		return running
	})
	var err error
	if r.config, err = r.sweeperConfig(o, log); err != nil {
		return nil, err
	}
	shown := o.metrics
	shown.Snapshots = snapshots
	shown.Clock = r.view.Clock
	shown.Fresh = r.view.Fresh
	shown.Excluded = text.Globs(o.sweeper.Exclude).Match
	shown.Disagreements = func() int {
		return len(diagnosis.Disagreements(r.view.Unlockers()))
	}
	shown.Removes = r.config.Mode == sweeper.AutoUnlock
	r.metrics = lockmetrics.New(shown)
	if r.pods, err = r.witnessPods(o, log); err != nil {
		return nil, err
	}
	r.sweeper, err = sweeper.New(r.config)
	return r, err
}

// sweeperConfig returns the sweeper's configuration, with its access to the view and the store.
func (r *components) sweeperConfig(o options, log zerolog.Logger) (sweeper.Config, error) {
	view, store := r.view, r.store
	mode, err := o.mode()
	if err != nil {
		return sweeper.Config{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return sweeper.Config{}, err
	}
	c := o.sweeper
	c.ID = instance(hostname)
	c.Hostname = hostname
	c.Version = daemon.CurrentBuild().Version
	c.Mode = mode
	c.Log = log.With().Str("instance", c.ID).Logger()
	c.Attributes = o.metrics.Attributes
	c.Now = time.Now
	c.Locks = view.All
	c.Lock = view.Lock
	c.Clock = view.Clock
	c.Queues = view.Queues
	c.Remove = store.AutoUnlock
	c.RemoveTicket = store.RemoveTicket
	c.Peers = view.Unlockers
	c.Fresh = view.Fresh
	c.Offsets = func(ctx context.Context) []time.Duration { return etcdconn.ClockOffsets(ctx, *o.etcd) }
	c.Announce = func(ctx context.Context, p metadata.Presence) (int64, uint64, error) {
		if r.pods != nil {
			p.WitnessProblem = r.pods.Problem()
		}
		revision, term, err := store.Announce(ctx, p)
		return revision, term, r.noteWrite(err, o.locks.Prefix())
	}
	return c, nil
}

func instance(hostname string) string {
	return strings.ReplaceAll(hostname, "/", "-") + "-" + uuid.NewString()[:8]
}

// noteWrite records whether etcd refuses our writes, and returns the error of a write as a sentence for operators. An
// unreachable etcd is another condition.
func (r *components) noteWrite(err error, prefix string) error {
	if err == nil {
		r.writeRefusal.Store(nil)
		return nil
	}
	sentence := etcdconn.Explain(err)
	switch etcdconn.Classify(err) {
	case etcdconn.Permission:
		sentence += "; an unlocker needs readwrite on the prefix " + prefix
		r.writeRefusal.Store(&sentence)
	case etcdconn.NoSpace:
		r.writeRefusal.Store(&sentence)
	}
	return errors.New(sentence)
}

// checkWrites is the readiness condition that etcd accepts our writes. Otherwise this unlocker removes nothing and
// cannot announce itself.
func (r *components) checkWrites() error {
	if sentence := r.writeRefusal.Load(); sentence != nil {
		return errors.New(*sentence)
	}
	return nil
}

// trimEvery is how often the history is trimmed to its limit. In between it may be longer.
const trimEvery = time.Minute

// trimRegularly keeps the history within its limit, when many locks are removed, until ctx ends. It begins at a random
// offset, so that several unlockers do not trim at once.
func trimRegularly(ctx context.Context, trim func(context.Context) (deleted int, err error), log zerolog.Logger) error {
	for pause := rand.N(trimEvery); ; pause = trimEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		switch n, err := trim(ctx); {
		case err != nil && ctx.Err() == nil:
			log.Warn().Str(zerolog.ErrorFieldName, etcdconn.Explain(err)).Msg("the history could not be trimmed")
		case n > 0:
			log.Info().Int("endings", n).Msg("the oldest endings were deleted from the history")
		}
	}
}
