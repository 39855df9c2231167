package cli

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot has all locks at one revision.
type snapshot struct {
	locks     []*metadata.Record // by name
	misplaced []*metadata.Record // outside the keys of any lock, by key prefix
	waiters   map[string][]metadata.Waiter
	unlockers []metadata.Presence      // running ones
	combined  diagnosis.CombinedPolicy // how these treat stale locks
	alarms    []string                 // raised by etcd, if they were read
	delays    []metadata.LockDelay     // by lock
	foreign   int                      // number of keys below the prefix that the protocol does not know
	revision  int64
}

// readAll connects and reads all locks, for commands that need nothing else from etcd.
func (a *app) readAll(ctx context.Context) (*snapshot, error) {
	s, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.snapshot(ctx)
	if err == nil && len(all.unlockers) == 0 { // unlockers cannot announce themselves to a full etcd
		all.alarms = s.alarms(ctx)
	}
	return all, err
}

// snapshot lists the locks. Keys come in order, so records are decoded one after the other, and only one backtrace
// is in memory at a time.
func (s *session) snapshot(ctx context.Context) (*snapshot, error) {
	all := &snapshot{waiters: map[string][]metadata.Waiter{}}
	statements := map[protocol.Key]*metadata.Statement{}
	var announced []presence
	g := protocol.RecordAssembler{Each: func(lock string, fields []metadata.Field, foreign []string) {
		all.locks = append(all.locks, new(lockrecord.DecodeRecord(lock, fields, foreign...)))
	}}
	misplaced := protocol.RecordAssembler{Each: func(place string, fields []metadata.Field, foreign []string) {
		if r := lockrecord.DecodeRecord(place, fields, foreign...); r.Token != 0 {
			s.layout.MarkMisplaced(&r)
			all.misplaced = append(all.misplaced, &r)
		}
	}}
	revision, err := s.store.ListKeys(ctx, func(kv protocol.KV) {
		switch key := s.layout.Parse(kv.Key); key.Kind {
		case protocol.KindField:
			g.Add(key, kv)
		case protocol.KindTicket:
			if w := lockstore.DecodeWaiter(key, kv); !w.Holding {
				all.waiters[key.Lock] = append(all.waiters[key.Lock], w)
			}
		case protocol.KindDeath, protocol.KindSuspicion:
			if st := protocol.ReadStatement(key.ID, kv); st != nil {
				statements[key] = st
			}
		case protocol.KindDelay:
			all.delays = append(all.delays, protocol.ReadDelay(key.Lock, kv))
		case protocol.KindUnlocker:
			if p, ok := readPresence(key.ID, kv); ok {
				announced = append(announced, p)
			} else if kv.Lease == 0 {
				all.foreign++
			}
		case protocol.KindForeign:
			g.Add(key, kv)
			if prefix, field, ok := s.layout.ParseMisplaced(kv.Key); ok {
				misplaced.Add(protocol.Key{Kind: protocol.KindField, Lock: prefix, ID: field}, kv)
			}
			all.foreign++
		}
	})
	if err != nil {
		return nil, s.explain(ctx, "list the locks", err)
	}
	g.Flush()
	misplaced.Flush()
	all.revision = revision
	if all.unlockers, err = s.running(ctx, announced); err != nil {
		return nil, err
	}
	all.combined = diagnosis.CombinePolicies(all.unlockers)
	all.attachStatements(statements)
	return all, nil
}

// attachStatements adds to each record the statements of witnesses about its holder, and sorts locks and waiters.
func (all *snapshot) attachStatements(statements map[protocol.Key]*metadata.Statement) {
	for _, r := range all.locks {
		lockrecord.AttachStatements(r, statements[protocol.Key{Kind: protocol.KindDeath, ID: r.UUID}],
			statements[protocol.Key{Kind: protocol.KindSuspicion, ID: r.UUID}])
	}
	byName(all.locks)
	for _, w := range all.waiters {
		lockstore.SortWaiters(w)
	}
}

func byName(locks []*metadata.Record) {
	slices.SortFunc(locks, func(a, b *metadata.Record) int { return cmp.Compare(a.Name, b.Name) })
}

// held returns which locks are held, by name.
func (all *snapshot) held() map[string]bool {
	held := make(map[string]bool, len(all.locks))
	for _, r := range all.locks {
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

// get reads the record of one lock. It is an error if nobody holds it.
func (s *session) get(ctx context.Context, name string) (metadata.FullRecord, error) {
	l, err := s.read(ctx, name)
	if err == nil && len(l.Record.Fields) == 0 {
		err = noLockf("nobody holds %s", text.Visible(name))
	}
	return l.Record, err
}

// lockInfo is a lock with a diagnosis of its holder, or its last ending.
type lockInfo struct {
	lockstore.LockInfo
	now       time.Time
	diagnosis diagnosis.Diagnosis      // of the holder
	cycles    []deadlock.Cycle         // deadlocks that the holder's process is part of
	combined  diagnosis.CombinedPolicy // how the unlockers treat stale locks
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
	if l.held() {
		return l, s.diagnose(ctx, l)
	}
	past, err := s.endingsOf(ctx, name)
	if len(past) > 0 {
		l.removed = &past[0]
	}
	return l, err
}

// held reports whether the lock or a share of it is held, or keys of a record are left.
func (l *lockInfo) held() bool { return len(l.Record.Fields) > 0 || len(l.Shares) > 0 }

func (l *lockInfo) isEmpty() bool {
	return !l.held() && len(l.Waiters) == 0 && len(l.Delays) == 0 && l.removed == nil
}

// holders returns the holders of a multi-holder lock.
func (l *lockInfo) holders() []*metadata.Record {
	var holders []*metadata.Record
	for i := range l.Shares {
		holders = append(holders, &l.Shares[i].Record)
	}
	return holders
}

func (l *lockInfo) json(raw bool) lockjson.Document {
	doc := &l.Record
	j := lockjson.Document{Client: lockjson.Known(doc.Client), Backtrace: lockjson.Known(doc.Backtrace),
		Queue: lockjson.Waiters(l.Waiters, l.now), Delays: lockjson.Delays(l.Delays, l.now),
		Diagnosis: lockjson.NewDiagnosis(l.diagnosis, l.now)}
	if v, ok := l.verdict(); ok {
		j.Verdict = lockjson.NewVerdict(&v, v.String(l.now), v.Command())
	}
	for _, r := range l.holders() {
		j.Holders = append(j.Holders, newLockJSON(r, l.combined.Policy, l.Waiters, l.now))
	}
	if len(doc.Fields) == 0 {
		j.Lock = lockjson.Whole(doc.Name, j.Holders, new(verdict.QueueOf(l.Waiters, l.now)), l.now)
	} else {
		j.Lock = newLockJSON(&doc.Record, l.combined.Policy, l.Waiters, l.now)
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
