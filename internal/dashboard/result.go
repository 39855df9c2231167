package dashboard

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
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
	mu      sync.Mutex
	entries map[string]*entry
	order   []string // oldest first
}

type entry struct {
	once   sync.Once
	timed  bool
	result atomic.Pointer[result]
}

// result answers the query, from the cache where it can. Answers that depend on the clock are kept for a second.
func (s *snapshot) result(q *query, o order, now time.Time) *result {
	key := o.String() + " " + q.text
	if q.timed {
		key += now.Format(" 2006-01-02T15:04:05")
	}
	e := s.results.entry(key)
	e.once.Do(func() {
		e.timed = q.timed
		e.result.Store(s.compute(key, q, o, now))
	})
	return e.result.Load()
}

// finished are the results that do not depend on the clock.
func (c *results) finished() map[string]*result {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := map[string]*result{}
	for key, e := range c.entries {
		if r := e.result.Load(); r != nil && !e.timed {
			done[key] = r
		}
	}
	return done
}

func (c *results) entry(key string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e
	}
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	if len(c.order) == maxResults {
		delete(c.entries, c.order[0])
		c.order = c.order[1:]
	}
	e := &entry{}
	c.entries[key] = e
	c.order = append(c.order, key)
	return e
}

// compute finds the rows. What the query found in the snapshot before is only gone through for what changed.
func (s *snapshot) compute(key string, q *query, o order, now time.Time) *result {
	if len(q.terms) == 0 {
		return &result{rows: s.inOrder(o), counts: s.all, version: s.version}
	}
	r := &result{version: fnv(fnvStart, uint64(len(s.rows)))}
	if before := s.results.before[key]; before != nil && s.changes.few {
		r.rows = s.changes.merge(o, before.rows, q.among(s.changes.came, now))
	} else {
		r.rows = q.among(s.inOrder(o), now)
	}
	for _, row := range r.rows {
		r.counts.add(row)
		r.version += row.mix
	}
	return r
}

// among are those of the rows that the query finds.
func (q *query) among(rows []*row, now time.Time) []*row {
	return slices.Concat(inPieces(len(rows), func(from, to int) (found []*row) {
		for _, row := range rows[from:to] {
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
	c.Name, c.Text = string(name), string(text)
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
