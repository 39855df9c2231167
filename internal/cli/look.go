package cli

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// look is all that etcd knows of one lock.
type look struct {
	lockstore.Look
	now       time.Time
	diagnosis diagnosis.Diagnosis // of the holder
	fate      fate.Fate           // what unlockers do to stale locks
	// removed is how the newest hold ended that its holder did not end, of a lock that nobody holds; nil if no ending
	// is recorded.
	removed *metadata.Ending
}

// look reads a lock, whether anybody holds it or not.
func (s *session) look(ctx context.Context, name string) (*look, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	read, err := s.store.Look(request, name)
	if err != nil {
		return nil, s.explain(ctx, "read "+text.Visible(name), err)
	}
	l := &look{Look: read, now: s.app.Now()}
	if l.fate, err = s.fate(ctx); err != nil {
		return l, err
	}
	if l.held() {
		l.diagnosis, err = s.diagnose(ctx, &l.Whole, l.now)
		return l, err
	}
	past, err := s.endingsOf(ctx, name)
	if len(past) > 0 {
		l.removed = &past[0]
	}
	return l, err
}

// held reports whether anybody holds the lock or a part of it, or keys of a record are left.
func (l *look) held() bool { return len(l.Whole.Fields) > 0 || len(l.Shares) > 0 }

// nothing reports whether there is nothing to show.
func (l *look) nothing() bool {
	return !l.held() && len(l.Waiters) == 0 && len(l.Delays) == 0 && l.removed == nil
}

// holders are those of a shared lock.
func (l *look) holders() []*metadata.Record {
	var holders []*metadata.Record
	for i := range l.Shares {
		holders = append(holders, &l.Shares[i].Record)
	}
	return holders
}

func (l *look) json(raw bool) lockjson.Document {
	doc := &l.Whole
	j := lockjson.Document{Client: lockjson.Known(doc.Client), Backtrace: lockjson.Known(doc.Backtrace),
		Queue: lockjson.Waiters(l.Waiters, l.now), Delays: lockjson.Delays(l.Delays, l.now),
		Diagnosis: lockjson.NewDiagnosis(l.diagnosis, l.now)}
	for _, r := range l.holders() {
		j.Holders = append(j.Holders, newLockJSON(r, l.fate.Policy, l.Waiters, l.now))
	}
	if len(doc.Fields) == 0 {
		j.Lock = lockjson.Whole(doc.Name, j.Holders, lockjson.QueueOf(l.Waiters), l.now)
	} else {
		j.Lock = newLockJSON(&doc.Record, l.fate.Policy, l.Waiters, l.now)
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
