package locks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Result is what a query found in a snapshot, sorted.
type Result struct {
	Rows   []*Row
	Counts Counts

	cycles map[string][2]int // those of Snapshot.cycleRanks
}

// Search returns what the query finds, sorted. It fails if the search was stopped.
func (s *Snapshot) Search(ctx context.Context, q *Query, o Order, now time.Time) (*Result, error) {
	if len(q.Terms) == 0 {
		return &Result{s.InOrder(o), s.Totals, s.cycleRanks()}, nil
	}
	ctx, cancel := WithLimit(ctx)
	defer cancel()
	if q.regexps > 0 {
		select {
		case s.regexpSlots <- struct{}{}:
			defer func() { <-s.regexpSlots }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	found := s.matching(ctx, q, now)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	cycles := s.cycleRanks()
	return &Result{sortRows(found, o, cycles), countsOf(found), cycles}, nil
}

// Class returns the class of a lock, that of a deadlocked one included.
func (r *Result) Class(row *Row) Class {
	if len(r.cycles) > 0 && row.Leased == nil {
		if _, deadlocked := r.cycles[row.Record.QueueName()]; deadlocked {
			return ClassDeadlock
		}
	}
	return row.Class
}

// Class returns the class of a lock, that of a deadlocked one included.
func (s *Snapshot) Class(row *Row) Class { return (&Result{cycles: s.cycleRanks()}).Class(row) }

// ByUrgency returns our locks, the most urgent first, and how many of them are not on time.
func (s *Snapshot) ByUrgency() (rows []*Row, urgent int) {
	r := Result{Rows: s.InOrder(Order{By: MostUrgent})[:len(s.Rows)], cycles: s.cycleRanks()}
	return r.Rows, sort.Search(len(r.Rows), func(i int) bool { return r.Class(r.Rows[i]) >= ClassOnTime })
}

// matching returns the rows that the query finds, by name; only some of them if ctx ended.
func (s *Snapshot) matching(ctx context.Context, q *Query, now time.Time) (found []*Row) {
	every := rowsPerContextCheck
	if q.regexps > 0 {
		every = 1
	}
	var subject Subject // of all rows, as the queries keep it on the heap
	for i, row := range s.allRows() {
		if i%every == 0 && ctx.Err() != nil {
			return found
		}
		if subject = row.Subject(); q.Matches(&subject, now) {
			found = append(found, row)
		}
	}
	return found
}

// Finds reports whether the query finds a lock: any of its holders or, if there is none, the lock with its queue.
func (s *Snapshot) Finds(q *Query, lock string, now time.Time) bool {
	holders := s.Holders(lock)
	if len(holders) == 0 {
		waiting := SummarizeWaiters(s.Queues[lock], now)
		free := Subject{Name: lock, Waiters: waiting.Waiters, Waits: waiting.Longest}
		return q.Matches(&free, now)
	}
	return slices.ContainsFunc(holders, func(r *Row) bool {
		subject := r.Subject()
		return q.Matches(&subject, now)
	})
}

// Filter returns the part of the snapshot that the query finds. It fails if the search was stopped.
func (s *Snapshot) Filter(ctx context.Context, q *Query, now time.Time) (*Snapshot, error) {
	found, err := s.Search(ctx, q, Order{By: "name"}, now)
	if err != nil {
		return nil, err
	}
	finds := func(lock string) bool { return s.Finds(q, lock, now) }
	in := Input{Queues: maps.Clone(s.Queues), Delays: s.Delays, Combined: s.Combined}
	maps.DeleteFunc(in.Queues, func(lock string, _ []metadata.Waiter) bool { return !finds(lock) })
	rows := slices.DeleteFunc(slices.Clone(found.Rows), func(r *Row) bool { return r.Leased != nil })
	for _, row := range rows {
		in.Locks = append(in.Locks, row.Record)
	}
	inconsistent := slices.DeleteFunc(slices.Clone(s.Inconsistent), func(l diagnosis.Inconsistent) bool {
		return !finds(l.Name)
	})
	some := build(in, staleness.Moment{Wall: s.at}, rows, inconsistent)
	some.Cycles = sync.OnceValue(func() []deadlock.Cycle {
		return slices.DeleteFunc(slices.Clone(s.Cycles()), func(c deadlock.Cycle) bool {
			return !slices.ContainsFunc(c.Locks(), finds)
		})
	})
	return some, nil
}

// Group is the locks of one owner in a result.
type Group struct {
	Owner string
	State metadata.State // of its most urgent lock
	Counts
	Rows []*Row // the first ones, in the order of the result

	rank [5]int64 // of its most urgent lock
}

// maxGroupRows is how many rows of a group are kept: more are a list of their own.
const maxGroupRows = 50

// ByOwner divides the result among owners, in the order of their first locks.
func (r *Result) ByOwner() (groups []*Group) {
	known := map[string]*Group{}
	for _, row := range r.Rows {
		g := known[row.Owner]
		if g == nil {
			g = &Group{Owner: row.Owner}
			known[row.Owner] = g
			groups = append(groups, g)
		}
		g.add(row)
		if rank := row.rank(r.cycles); g.Total == 1 || slices.Compare(rank[:], g.rank[:]) < 0 {
			g.rank, g.State = rank, row.StateIn(r.Class(row))
		}
		if len(g.Rows) < maxGroupRows {
			g.Rows = append(g.Rows, row)
		}
	}
	return groups
}

// cursor is a position between two rows of a list, as a link has it. Names may be invalid UTF-8, which JSON text cannot
// hold.
type cursor struct {
	Unknown bool     `json:"u,omitempty"`
	Keys    [5]int64 `json:"k"`
	Text    []byte   `json:"t,omitempty"`
	Name    []byte   `json:"n"`
	List    string   `json:"l"` // fingerprint of query and order
}

// ListID returns the fingerprint that ties a cursor to its list.
func ListID(q *Query, o Order) string {
	return strconv.FormatUint(xxhash.Sum64String(o.String()+"\n"+q.Text), 36)
}

func cursorAt(p SortKey, list string) string {
	b, err := json.Marshal(cursor{p.Unknown, p.Keys, []byte(p.Text), []byte(p.Name), list})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads a cursor back; ok is false for a cursor of another list, and for what is none.
func ParseCursor(s, list string) (p SortKey, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return p, false
	}
	var c cursor
	if json.Unmarshal(b, &c) != nil || c.List != list {
		return p, false
	}
	return SortKey{c.Unknown, c.Keys, string(c.Text), string(c.Name)}, true
}

// Window is a page of a result.
type Window struct {
	Rows       []*Row
	First      int    // rank of the first row, from 0
	Prev, Next string // cursors; empty at the ends
}

// Window returns one page: the one after a cursor, before one, or the first.
func (r *Result) Window(o Order, list, after, before string, limit int) Window {
	from := 0
	if p, ok := ParseCursor(after, list); ok {
		from = min(r.search(o, p, 1), max(0, len(r.Rows)-1))
	} else if p, ok := ParseCursor(before, list); ok {
		from = max(0, r.search(o, p, 0)-limit)
	}
	w := Window{Rows: r.Rows[from:min(from+limit, len(r.Rows))], First: from}
	if from > 0 {
		w.Prev = cursorAt(o.position(w.Rows[0], r.cycles), list)
	}
	if from+limit < len(r.Rows) {
		w.Next = cursorAt(o.position(w.Rows[limit-1], r.cycles), list)
	}
	return w
}

// search returns the index of the first row that is behind a position, or also at it if atLeast is 0. The lock of the
// position is found by its name first: what it costs to wait for a lock grows, and with it the lock moves.
func (r *Result) search(o Order, p SortKey, atLeast int) int {
	if i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Name == p.Name }); i >= 0 {
		return i + atLeast
	}
	return sort.Search(len(r.Rows), func(i int) bool {
		at := o.position(r.Rows[i], r.cycles)
		return o.compare(&at, &p) >= atLeast
	})
}

// recentlyAlive is how long after a sign of life a hold is left out.
const recentlyAlive = time.Minute

// BulkHolds has the holds that an operator ends in one action, for example all of a machine that is gone.
type BulkHolds struct {
	Rows    []*Row // as they were shown
	LeftOut int    // holds whose holders were alive within the last minute
}

// ChooseBulkHolds chooses among the rows that a query finds. It leaves out rows that are no holds and, unless evenAlive
// is set, the holds of holders that were alive recently.
func ChooseBulkHolds(found []*Row, evenAlive bool, now time.Time) BulkHolds {
	holds := slices.DeleteFunc(slices.Clone(found), func(r *Row) bool {
		return r.Token == 0 || r.Misplaced || r.Leased != nil
	})
	if evenAlive {
		return BulkHolds{Rows: holds}
	}
	n := len(holds)
	chosen := slices.DeleteFunc(holds, func(r *Row) bool { return r.isAlive(now) })
	return BulkHolds{Rows: chosen, LeftOut: n - len(chosen)}
}
