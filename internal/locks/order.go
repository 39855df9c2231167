package locks

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Order is how a list is sorted.
type Order struct {
	By      string
	Reverse bool
}

// MostUrgent is the default order, that of the sentence above a list: locks that need a person come first, by their
// class and what it costs to wait ([HeldLock.Compare]); those on time come last, those with waiters first among
// them, then by what is due next.
const MostUrgent = "urgency"

// Orders returns the columns that a list can be sorted by.
func Orders() []string {
	return []string{MostUrgent, "name", "owner", "host", "held", "alert", "unlock", "waiters"}
}

// ParseOrder reads "unlock" or "-unlock"; anything else is the default order.
func ParseOrder(s string) Order {
	by, reverse := strings.CutPrefix(s, "-")
	if !slices.Contains(Orders(), by) {
		return Order{By: MostUrgent}
	}
	return Order{by, reverse}
}

func (o Order) String() string {
	if o.Reverse {
		return "-" + o.By
	}
	return o.By
}

// deadline returns the time of the next automatic change of the lock; zero = none.
func (r *Row) deadline() time.Time {
	if r.Display == metadata.StateHeld && !r.DueAlert.IsZero() {
		return r.DueAlert
	}
	return r.DueUnlock()
}

// SortKey is the position of a lock in an order. It outlives the lock: a page can begin after a position even if its
// lock is gone.
type SortKey struct {
	Unknown bool     // the lock lacks what the order sorts by: it comes last in either direction
	Keys    [5]int64 // the most significant one first
	Text    string   // in the form that sorts
	Name    string
}

// position returns the position of the lock in this order. cycles has the [Snapshot.cycleRanks].
func (o Order) position(r *Row, cycles map[string][2]int) SortKey {
	p := SortKey{Name: r.Name}
	switch o.By {
	case "name":
		p.Text = r.Name
	case "owner":
		p.Text = strings.ToLower(r.Owner)
		p.Unknown = r.Owner == ""
	case "host":
		p.Text = natural(r.Hostname) + "\x00" + r.Hostname // web-1 and web-01 differ
		p.Unknown = r.Hostname == ""
	case "held":
		p.Keys[0] = protocol.SortableTime(r.LockedAt)
	case "alert":
		p.Keys[0] = protocol.SortableTime(r.DueAlert)
	case "unlock":
		p.Keys[0] = protocol.SortableTime(r.DueUnlock())
	case "waiters": // most of them first, then the longest wait
		p.Keys[0] = -int64(r.Waiters)
		p.Keys[1] = protocol.SortableTime(r.Longest)
		p.Unknown = r.Waiters == 0
	default:
		p.Text = r.Record.QueueName()
		p.Keys = r.rank(cycles)
	}
	p.Unknown = p.Unknown || p.Keys[0] == math.MaxInt64
	return p
}

func (o Order) compare(a, b *SortKey) int {
	switch {
	case a.Unknown && !b.Unknown:
		return 1
	case b.Unknown && !a.Unknown:
		return -1
	}
	c := slices.Compare(a.Keys[:], b.Keys[:])
	if c == 0 {
		c = strings.Compare(a.Text, b.Text)
	}
	if o.Reverse {
		c = -c
	}
	if c == 0 {
		return strings.Compare(a.Name, b.Name)
	}
	return c
}

// natural returns a sort key that orders the numbers in a text by value: web-9 before web-10. Each number becomes a
// digit, which compares with other characters as the number does, the count of its digits, and the digits without
// leading zeros.
func natural(text string) string {
	key := make([]byte, 0, 2*len(text))
	for len(text) > 0 {
		digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
		if digits == "" {
			key = append(key, text[0])
			text = text[1:]
			continue
		}
		text = text[len(digits):]
		digits = strings.TrimLeft(digits, "0")
		key = append(key, '0', byte(len(digits)>>16), byte(len(digits)>>8), byte(len(digits)))
		key = append(key, digits...)
	}
	return string(key)
}

// sortings caches all rows of a snapshot in the orders that were asked for.
type sortings struct {
	mu   sync.Mutex
	done map[Order][]*Row
}

// InOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *Snapshot) InOrder(o Order) []*Row {
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	rows, ok := s.sorted.done[o]
	if !ok {
		rows = sortRows(s.allRows(), o, s.cycleRanks())
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
}

// cycleRanks returns, for each lock in a deadlock, the place of its cycle and its place in it.
func (s *Snapshot) cycleRanks() map[string][2]int {
	ranks := map[string][2]int{}
	for i, cycle := range s.Cycles() {
		for n, lock := range cycle.Locks() {
			if _, known := ranks[lock]; !known {
				ranks[lock] = [2]int{i, n}
			}
		}
	}
	return ranks
}

// Sort returns rows in the order, as if no lock were part of a deadlock.
func Sort(rows []*Row, o Order) []*Row { return sortRows(rows, o, nil) }

func sortRows(rows []*Row, o Order, cycles map[string][2]int) []*Row {
	type placed struct {
		SortKey
		row *Row
	}
	all := make([]placed, len(rows))
	for i, r := range rows {
		all[i] = placed{o.position(r, cycles), r}
	}
	slices.SortFunc(all, func(a, b placed) int { return o.compare(&a.SortKey, &b.SortKey) })
	sorted := make([]*Row, len(rows))
	for i := range all {
		sorted[i] = all[i].row
	}
	return sorted
}
