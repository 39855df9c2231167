package locks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what a query found in a snapshot, sorted.
type Result struct {
	Rows    Rows
	Counts  Counts
	Version uint64 // changes with anything that the list shows

	grouping  sync.Once
	groups    []*Group
	older     []stretch                 // of what the query found in the snapshot before, until they are grouped
	stretches atomic.Pointer[[]stretch] // nil until then
}

// maxResults is how many results a snapshot keeps.
const maxResults = 32

// results is the cache of a snapshot: each query is computed once, however many ask for it at once. It is not built on
// golang.org/x/sync/singleflight: there, a caller that leaves cannot stop a search, or a search that panics ends the
// process.
type results struct {
	before  map[string]*Result // of the snapshot before
	costly  chan struct{}      // of all snapshots: searches with regular expressions that go on
	mu      sync.Mutex
	entries map[string]*entry
	order   []string // oldest first
}

// entry is a result that is being computed for the first who asked, or done.
type entry struct {
	timed  bool
	done   chan struct{} // closed when result and err are there
	result *Result       // nil when the search was stopped
	err    error         // nil when it was stopped because its reader left: others may still want it
}

// Result answers the query, from the cache where it can. Answers that depend on the clock are kept for a second. The
// error is a problem: the search was stopped.
func (s *Snapshot) Result(ctx context.Context, q *Query, o Order, now time.Time) (*Result, error) {
	key := o.String() + " " + q.Text + q.left
	if q.timed {
		key += now.Format(" 2006-01-02T15:04:05")
	}
	for {
		e, mine := s.results.entry(key, q.timed)
		if mine {
			return s.fill(ctx, e, key, q, o, now)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, Stopped(ctx)
		}
		if e.result != nil || e.err != nil {
			return e.result, e.err
		}
	}
}

// fill computes the result of an entry, for all who wait for it.
func (s *Snapshot) fill(ctx context.Context, e *entry, key string, q *Query, o Order, now time.Time) (*Result, error) {
	ctx, cancel := WithLimit(ctx)
	defer cancel()
	defer close(e.done)
	defer func() {
		if e.result == nil { // also after a panic
			s.results.drop(key, e)
		}
	}()
	if q.regexps > 0 {
		select {
		case s.results.costly <- struct{}{}:
			defer func() { <-s.results.costly }()
		case <-ctx.Done():
			return nil, Stopped(ctx)
		}
	}
	found, err := s.compute(ctx, key, q, o, now)
	if err != nil && !errors.Is(err, ErrLeft) {
		e.err = err
	}
	e.result = found
	return found, err
}

// finished are the results that do not depend on the clock.
func (r *results) finished() map[string]*Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := map[string]*Result{}
	for key, e := range r.entries {
		select {
		case <-e.done:
			if e.result != nil && !e.timed {
				done[key] = e.result
			}
		default:
		}
	}
	return done
}

// entry returns the entry of the key. It is the caller's to fill when it is new.
func (r *results) entry(key string, timed bool) (e *entry, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[key]; e != nil {
		return e, false
	}
	if r.entries == nil {
		r.entries = map[string]*entry{}
	}
	if len(r.order) == maxResults {
		delete(r.entries, r.order[0])
		r.order = r.order[1:]
	}
	e = &entry{timed: timed, done: make(chan struct{})}
	r.entries[key] = e
	r.order = append(r.order, key)
	return e, true
}

// drop forgets an entry that has no result.
func (r *results) drop(key string, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[key] == e {
		delete(r.entries, key)
		r.order = slices.DeleteFunc(r.order, func(k string) bool { return k == key })
	}
}

// compute finds the rows. What the query found in the snapshot before is only gone through for what changed.
func (s *Snapshot) compute(ctx context.Context, key string, q *Query, o Order, now time.Time) (*Result, error) {
	before := s.results.before[key]
	var older []stretch
	if before != nil {
		if known := before.stretches.Load(); known != nil {
			older = *known
		}
	}
	if len(q.Terms) == 0 {
		return &Result{Rows: s.InOrder(o), Counts: s.All, Version: s.Version, older: older}, nil
	}
	var r *Result
	if before != nil && s.changes.few {
		r = sumUp(s.changes.merge(o, before.Rows, s.among(ctx, q, s.changes.came, now)))
	} else {
		r = sumUp(s.found(ctx, q, o, now))
	}
	if err := Stopped(ctx); err != nil {
		return nil, err
	}
	r.Version += Hash(uint64(s.Rows.Len()))
	r.older = older
	return r, nil
}

// found are the rows that the query finds, in order. Rows are read faster by name, because they lie next to each other
// in memory, but then what is found has to be sorted. A sample shows whether that is little enough.
func (s *Snapshot) found(ctx context.Context, q *Query, o Order, now time.Time) Rows {
	all := s.Rows.Len()
	sample := make([]*Row, 0, sampled)
	for i := range min(sampled, all) {
		sample = append(sample, s.Rows.At(i*all/min(sampled, all)))
	}
	if len(s.among(ctx, q, sample, now)) > sampled/8 {
		return rowsOf(s.matching(ctx, q, s.InOrder(o), now))
	}
	return rowsOf(o.Sort(s.matching(ctx, q, s.Rows, now)))
}

// sampled is how many rows are looked at to guess how many a query finds.
const sampled = 256

// sumUp is the result with these rows.
func sumUp(rows Rows) *Result {
	all := rows.total()
	return &Result{Rows: rows, Counts: all.counts, Version: all.version}
}

// matching are those of the rows that the query finds, or some of them when ctx ended.
func (s *Snapshot) matching(ctx context.Context, q *Query, rows Rows, now time.Time) []*Row {
	return slices.Concat(inPieces(len(rows.runs), minPiece/runSize, func(from, to int) (found []*Row) {
		for _, r := range rows.runs[from:to] {
			found = append(found, s.among(ctx, q, r.rows, now)...)
		}
		return found
	})...)
}

// among is [Snapshot.matching] for few rows.
func (s *Snapshot) among(ctx context.Context, q *Query, rows []*Row, now time.Time) (found []*Row) {
	every := rowsBetweenLooks
	if q.regexps > 0 {
		every = 1
	}
	for i, row := range rows {
		if i%every == 0 && ctx.Err() != nil {
			return nil
		}
		if q.Matches(row, s.asOf(row, now)) {
			found = append(found, row)
		}
	}
	return found
}
