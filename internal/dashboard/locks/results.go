package locks

import (
	"cmp"
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

	"github.com/clustermutex/unlocker/internal/lockorder"
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
func (s *Snapshot) Result(ctx context.Context, q *Query, o lockorder.Order, now time.Time) (*Result, error) {
	key := o.String() + " " + q.Text
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
func (s *Snapshot) fill(ctx context.Context, e *entry, key string, q *Query, o lockorder.Order,
	now time.Time) (*Result, error) {
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

func (s *Snapshot) compute(ctx context.Context, q *Query, o lockorder.Order, now time.Time) (*Result, error) {
	if len(q.Terms) == 0 {
		return &Result{Rows: s.InOrder(o), Counts: s.All, Version: s.All.Version}, nil
	}
	found := Sort(s.matching(ctx, q, now), o)
	if err := Stopped(ctx); err != nil {
		return nil, err
	}
	all := countsOf(found)
	return &Result{Rows: found, Counts: all, Version: all.Version + Hash(uint64(len(s.Rows)))}, nil
}

// matching are the rows that the query finds, by name, or some of them when ctx ended.
func (s *Snapshot) matching(ctx context.Context, q *Query, now time.Time) []*Row {
	every := rowsBetweenLooks
	if q.regexps > 0 {
		every = 1
	}
	return slices.Concat(inChunks(len(s.Rows), func(from, to int) (found []*Row) {
		for i, row := range s.Rows[from:to] {
			if i%every == 0 && ctx.Err() != nil {
				return nil
			}
			if q.Matches(row, now) {
				found = append(found, row)
			}
		}
		return found
	})...)
}

// Group is the locks of one owner in a result.
type Group struct {
	Owner   string
	Display DisplayState // the worst
	Counts
	Rows []*Row // the first ones, in the order of the result
}

// maxGroupRows is how many rows of a group are kept: more are a list of their own.
const maxGroupRows = 50

// unknown is 1 for the locks of nobody in particular.
func (g *Group) unknown() int {
	if g.Owner == "" {
		return 1
	}
	return 0
}

// ByOwner divides the result among owners: first who blocks most, then who needs a person. It is done once for all who
// ask.
func (r *Result) ByOwner() []*Group {
	r.grouping.Do(func() {
		r.groups = byOwner(r.Rows)
		slices.SortFunc(r.groups, func(a, b *Group) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting),
				cmp.Compare(lockorder.Instant(a.Longest), lockorder.Instant(b.Longest)),
				cmp.Compare(a.Display.Urgency(), b.Display.Urgency()), cmp.Compare(b.Late(), a.Late()),
				cmp.Compare(b.Total, a.Total), cmp.Compare(a.unknown(), b.unknown()), cmp.Compare(a.Owner, b.Owner))
		})
	})
	return r.groups
}

func byOwner(rows []*Row) (groups []*Group) {
	known := map[string]*Group{}
	for _, r := range rows {
		g := known[r.Owner]
		if g == nil {
			g = &Group{Owner: r.Owner, Display: r.Display}
			known[r.Owner] = g
			groups = append(groups, g)
		}
		g.add(r)
		if r.Display.Urgency() < g.Display.Urgency() {
			g.Display = r.Display
		}
		if len(g.Rows) < maxGroupRows {
			g.Rows = append(g.Rows, r)
		}
	}
	return groups
}

// cursor is a position between two rows of a list, as it travels in a link.
type cursor struct {
	lockorder.Position
	List string `json:"l"` // fingerprint of query and order
}

// ListID is the fingerprint that ties a cursor to its list.
func ListID(q *Query, o lockorder.Order) string {
	sum := sha256.Sum256([]byte(o.String() + "\n" + q.Text))
	return hex.EncodeToString(sum[:4])
}

func cursorAt(p lockorder.Position, list string) string {
	// Names may be invalid UTF-8, which JSON text cannot hold.
	p.Name = base64.RawStdEncoding.EncodeToString([]byte(p.Name))
	p.Text = base64.RawStdEncoding.EncodeToString([]byte(p.Text))
	b, err := json.Marshal(cursor{p, list})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads a cursor back; ok is false for a cursor of another list, and for what is none.
func ParseCursor(s, list string) (p lockorder.Position, ok bool) {
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
	return c.Position, err1 == nil && err2 == nil
}

// Window is a page of a result.
type Window struct {
	Rows       []*Row
	First      int    // rank of the first row, from 0
	Prev, Next string // cursors; empty at the ends
}

// Window cuts a page out: after a cursor, before one, or from the start.
func (r *Result) Window(o lockorder.Order, list, after, before string, limit int) Window {
	from := 0
	if p, ok := ParseCursor(after, list); ok {
		from = min(r.search(o, p, 1), max(0, len(r.Rows)-1))
	} else if p, ok := ParseCursor(before, list); ok {
		from = max(0, r.search(o, p, 0)-limit)
	}
	w := Window{Rows: r.Rows[from:min(from+limit, len(r.Rows))], First: from}
	if from > 0 {
		w.Prev = cursorAt(o.Position(w.Rows[0].sorted()), list)
	}
	if from+limit < len(r.Rows) {
		w.Next = cursorAt(o.Position(w.Rows[limit-1].sorted()), list)
	}
	return w
}

// search returns the index of the first row that compares to p with at least atLeast.
func (r *Result) search(o lockorder.Order, p lockorder.Position, atLeast int) int {
	return sort.Search(len(r.Rows), func(i int) bool {
		at := o.Position(r.Rows[i].sorted())
		return o.Compare(&at, &p) >= atLeast
	})
}
