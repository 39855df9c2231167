package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"
)

// result is what a query found in a snapshot, sorted.
type result struct {
	rows    []*row
	counts  counts
	version uint64 // changes with anything that the list shows

	grouping sync.Once
	groups   []*group
}

// maxResults is how many results a snapshot keeps.
const maxResults = 32

// results is the cache of a snapshot: each query is computed once, however many people ask for it at once.
type results struct {
	before  map[string]*result // of the snapshot before
	costly  chan struct{}      // of all snapshots: searches with regular expressions that go on
	mu      sync.Mutex
	entries map[string]*entry
	order   []string // oldest first
}

// entry is a result that is being computed for the first who asked, or done.
type entry struct {
	timed  bool
	done   chan struct{} // closed when result and err are there
	result *result       // nil when the search was stopped
	err    error         // nil when it was stopped because its reader left: others may still want it
}

// result answers the query, from the cache where it can. Answers that depend on the clock are kept for a second. The
// error is a problem: the search was stopped.
func (s *snapshot) result(ctx context.Context, q *query, o order, now time.Time) (*result, error) {
	key := o.String() + " " + q.text
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
			return nil, stopped(ctx)
		}
		if e.result != nil || e.err != nil {
			return e.result, e.err
		}
	}
}

// fill computes the result of an entry, for all who wait for it.
func (s *snapshot) fill(ctx context.Context, e *entry, key string, q *query, o order, now time.Time) (*result, error) {
	ctx, cancel := searching(ctx)
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
			return nil, stopped(ctx)
		}
	}
	found, err := s.compute(ctx, key, q, o, now)
	if err != nil && !errors.Is(err, errLeft) {
		e.err = err
	}
	e.result = found
	return found, err
}

// finished are the results that do not depend on the clock.
func (c *results) finished() map[string]*result {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := map[string]*result{}
	for key, e := range c.entries {
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
func (c *results) entry(key string, timed bool) (e *entry, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e, false
	}
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	if len(c.order) == maxResults {
		delete(c.entries, c.order[0])
		c.order = c.order[1:]
	}
	e = &entry{timed: timed, done: make(chan struct{})}
	c.entries[key] = e
	c.order = append(c.order, key)
	return e, true
}

// drop forgets an entry that has no result.
func (c *results) drop(key string, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
		c.order = slices.DeleteFunc(c.order, func(k string) bool { return k == key })
	}
}

// compute finds the rows. What the query found in the snapshot before is only gone through for what changed.
func (s *snapshot) compute(ctx context.Context, key string, q *query, o order, now time.Time) (*result, error) {
	if len(q.terms) == 0 {
		return &result{rows: s.inOrder(o), counts: s.all, version: s.version}, nil
	}
	r := &result{version: fnv(fnvStart, uint64(len(s.rows)))}
	if before := s.results.before[key]; before != nil && s.changes.few {
		r.rows = s.changes.merge(o, before.rows, q.among(ctx, s.changes.came, now))
	} else {
		r.rows = q.among(ctx, s.inOrder(o), now)
	}
	if err := stopped(ctx); err != nil {
		return nil, err
	}
	for _, row := range r.rows {
		r.counts.add(row)
		r.version += row.mix
	}
	return r, nil
}

// among are those of the rows that the query finds, or some of them when ctx ended.
func (q *query) among(ctx context.Context, rows []*row, now time.Time) []*row {
	every := rowsBetweenLooks
	if q.regexps > 0 {
		every = 1
	}
	return slices.Concat(inPieces(len(rows), func(from, to int) (found []*row) {
		for i, row := range rows[from:to] {
			if i%every == 0 && ctx.Err() != nil {
				return nil
			}
			if q.matches(row, now) {
				found = append(found, row)
			}
		}
		return found
	})...)
}

// cursor is a position between two rows of a list, as it travels in a link.
type cursor struct {
	position
	List string `json:"l"` // fingerprint of query and order
}

// listID is the fingerprint that ties a cursor to its list.
func listID(q *query, o order) string {
	sum := sha256.Sum256([]byte(o.String() + "\n" + q.text))
	return hex.EncodeToString(sum[:4])
}

func (p position) cursor(list string) string {
	// Names may be invalid UTF-8, which JSON text can not hold.
	p.Name, p.Text = bytesText(p.Name), bytesText(p.Text)
	b, err := json.Marshal(cursor{p, list})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads a cursor back; ok is false for one that is of another list or no cursor at all.
func parseCursor(s, list string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return p, false
	}
	var c cursor
	if json.Unmarshal(b, &c) != nil || c.List != list {
		return p, false
	}
	name, err1 := base64.RawStdEncoding.DecodeString(c.Name)
	text, err2 := base64.RawStdEncoding.DecodeString(c.Text)
	c.Name = string(name)
	c.Text = string(text)
	return c.position, err1 == nil && err2 == nil
}

func bytesText(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) }

// window is a page of a result.
type window struct {
	rows       []*row
	first      int    // rank of the first row, from 0
	prev, next string // cursors; empty at the ends
}

// window cuts a page out: after a cursor, before one, or from the start.
func (r *result) window(o order, list, after, before string, limit int) window {
	from := 0
	if p, ok := parseCursor(after, list); ok {
		from = min(r.search(o, p, 1), max(0, len(r.rows)-1))
	} else if p, ok := parseCursor(before, list); ok {
		from = max(0, r.search(o, p, 0)-limit)
	}
	w := window{rows: r.rows[from:min(from+limit, len(r.rows))], first: from}
	if from > 0 {
		w.prev = o.position(w.rows[0]).cursor(list)
	}
	if from+limit < len(r.rows) {
		w.next = o.position(w.rows[limit-1]).cursor(list)
	}
	return w
}

// search returns the index of the first row that compares to p with at least atLeast.
func (r *result) search(o order, p position, atLeast int) int {
	return sort.Search(len(r.rows), func(i int) bool {
		at := o.position(r.rows[i])
		return o.compare(&at, &p) >= atLeast
	})
}
