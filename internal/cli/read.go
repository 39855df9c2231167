package cli

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot has all locks at one revision.
type snapshot struct {
	view      *lockview.View
	unlockers []metadata.Presence      // running ones
	combined  diagnosis.CombinedPolicy // how these treat stale locks
	alarms    []string                 // raised by etcd; a full one keeps unlockers from announcing themselves
}

// snapshot reads all locks, and what is said about all of them.
func (s *session) snapshot(ctx context.Context) (*snapshot, error) {
	others, err := etcdlocks.Load(ctx, s.app.etcdLocks, s.layout, s.store)
	if err != nil {
		return nil, s.explain(ctx, "read the locks of other libraries", err)
	}
	view := lockview.New(s.layout, lockview.Source{List: s.store.ListKeys},
		lockview.Options{Leased: func() []*locks.Row { return others }})
	if err := view.Load(ctx); err != nil {
		return nil, s.explain(ctx, "list the locks", err)
	}
	unlockers, err := s.unlockers(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshot{view: view, alarms: s.alarms(ctx), unlockers: unlockers,
		combined: diagnosis.CombinePolicies(unlockers)}, nil
}

func (all *snapshot) model(by diagnosis.CombinedPolicy, now time.Time) *locks.Snapshot {
	by = withoutDefaults(by)
	return all.view.Snapshots(func() diagnosis.CombinedPolicy { return by }).Current(now, locks.Freshness{})
}

// held returns which locks are held, by name.
func (all *snapshot) held() map[string]bool {
	held := map[string]bool{}
	for _, r := range all.view.Locks() {
		held[r.Name] = r.Token != 0
	}
	return held
}

// read reads a lock, whether it is held or not.
func (s *session) read(ctx context.Context, name string) (lockstore.LockInfo, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	l, err := s.store.ReadLock(request, name)
	if err != nil {
		return l, s.explain(ctx, "read "+text.Visible(name), err)
	}
	return l, nil
}

// lockInfo is a lock with a diagnosis of its holder, or its last ending.
type lockInfo struct {
	lockstore.LockInfo
	now       time.Time
	diagnosis diagnosis.Diagnosis      // of the holder
	cycles    []deadlock.Cycle         // deadlocks that the holder's process is part of
	combined  diagnosis.CombinedPolicy // how the unlockers treat stale locks
	row       *locks.Row               // the holder of the whole lock; nil if nobody holds it
	shares    []*locks.Row             // the holders of a multi-holder lock, the most urgent first
	// removed is the newest recorded ending, if nobody holds the lock; nil if none is recorded.
	removed *metadata.Ending
}

// lockInfo reads a lock, and diagnoses its holder or reads its last ending.
func (s *session) lockInfo(ctx context.Context, name string) (*lockInfo, error) {
	read, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	l := &lockInfo{LockInfo: read, now: s.app.Now()}
	if l.combined, err = s.combined(ctx); err != nil {
		return l, err
	}
	if l.isHeld() {
		l.judge()
		return l, s.diagnose(ctx, l)
	}
	past, err := s.endingsOf(ctx, name)
	if len(past) > 0 {
		l.removed = &past[0]
	}
	return l, err
}

// isHeld reports whether the lock or a share of it is held, or keys of a record are left.
func (l *lockInfo) isHeld() bool { return len(l.Record.Fields) > 0 || len(l.Shares) > 0 }

func (l *lockInfo) isEmpty() bool {
	return !l.isHeld() && len(l.Waiters) == 0 && len(l.Delays) == 0 && l.removed == nil
}

func (l *lockInfo) judge() {
	combined := withoutDefaults(l.combined)
	model := locks.NewSnapshots(locks.Source{Combined: func() diagnosis.CombinedPolicy { return combined }})
	judge := func(r *metadata.Record) *locks.Row { return model.Reread(asSeen(r, l.now), l.Waiters, nil, l.now) }
	if len(l.Record.Fields) > 0 {
		l.row = judge(&l.Record.Record)
	}
	for i := range l.Shares {
		l.shares = append(l.shares, judge(&l.Shares[i].Record))
	}
	l.shares = locks.Sort(l.shares, locks.Order{By: locks.MostUrgent})
}

func (l *lockInfo) holders() []*locks.Row {
	if l.row == nil {
		return l.shares
	}
	return append([]*locks.Row{l.row}, l.shares...)
}

func (l *lockInfo) json(raw bool) lockjson.Document {
	doc := &l.Record
	j := lockjson.NewDocument(doc.Name, l.row, l.shares, l.Waiters, l.Delays, l.now)
	j.Client = lockjson.OrNull(doc.Client)
	j.Backtrace = lockjson.OrNull(doc.Backtrace)
	j.Diagnosis = lockjson.NewDiagnosis(l.diagnosis, l.now)
	if v, ok := l.headline(); ok {
		j.Headline = lockjson.NewHeadline(&v, v.String(l.now), v.Command())
	}
	if l.removed != nil {
		j.Ending = new(lockjson.NewEnding(l.removed, l.now))
	}
	if raw {
		for _, f := range doc.Fields {
			j.Fields = append(j.Fields, lockjson.NewField(f))
		}
	}
	return j
}

// headline returns the headline about one lock; ok is false if nobody holds it.
func (l *lockInfo) headline() (v headline.Headline, ok bool) {
	holders := l.holders()
	if len(holders) == 0 {
		return headline.Headline{}, false
	}
	whole := locks.NewHeldLock(l.Record.Name, holders)
	records := make([]*metadata.Record, len(holders))
	for i, r := range holders {
		records[i] = r.Record
	}
	return headline.ForLock(headline.Input{Now: l.now, Combined: l.combined, Cycles: l.cycles,
		Inconsistent: diagnosis.FindInconsistent(records, nil)}, l.Record.Name, &whole)
}
