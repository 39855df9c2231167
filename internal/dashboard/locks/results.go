package locks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Result is what a query found in a snapshot, sorted.
type Result struct {
	Rows    []*Row
	Counts  Counts
	Version uint64 // changes with anything that the list shows

	grouping sync.Once
	groups   []*Group
}

// maxResults is how many results a snapshot keeps.
const maxResults = 32

// results is the cache of a snapshot: each query is computed once, however many ask for it at once. It is not built on
// golang.org/x/sync/singleflight: there, a caller that leaves cannot stop a search, or a search that panics ends the
// process.
type results struct {
	costly  chan struct{} // of all snapshots: searches with regular expressions that go on
	mu      sync.Mutex
	entries map[string]*entry
	order   []string // oldest first
}

// entry is a result that is being computed for the first who asked, or done.
type entry struct {
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
		e, mine := s.results.entry(key)
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
	found, err := s.compute(ctx, q, o, now)
	if err != nil && !errors.Is(err, ErrLeft) {
		e.err = err
	}
	e.result = found
	return found, err
}

// entry returns the entry of the key. It is the caller's to fill when it is new.
func (r *results) entry(key string) (e *entry, mine bool) {
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
	e = &entry{done: make(chan struct{})}
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

// compute finds the rows.
func (s *Snapshot) compute(ctx context.Context, q *Query, o Order, now time.Time) (*Result, error) {
	if len(q.Terms) == 0 {
		return &Result{Rows: s.InOrder(o), Counts: s.All, Version: s.Version}, nil
	}
	found := o.Sort(s.matching(ctx, q, now))
	if err := Stopped(ctx); err != nil {
		return nil, err
	}
	all := totalOf(found)
	return &Result{Rows: found, Counts: all.counts, Version: all.version + Hash(uint64(len(s.Rows)))}, nil
}

// matching are the rows that the query finds, by name, or some of them when ctx ended.
func (s *Snapshot) matching(ctx context.Context, q *Query, now time.Time) []*Row {
	every := rowsBetweenLooks
	if q.regexps > 0 {
		every = 1
	}
	return slices.Concat(inChunks(len(s.Rows), minChunk, func(from, to int) (found []*Row) {
		for i, row := range s.Rows[from:to] {
			if i%every == 0 && ctx.Err() != nil {
				return nil
			}
			if q.Matches(row, s.asOf(row, now)) {
				found = append(found, row)
			}
		}
		return found
	})...)
}
