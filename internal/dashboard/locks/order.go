package locks

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Order is how a list is sorted.
type Order struct {
	By      string
	Reverse bool
}

// MostUrgent is the default order: by state; in it those locks first that most wait for, and longest; then by deadline.
const MostUrgent = "urgency"

// Orders are what a list can be sorted by.
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

// position is where a lock stands in an order. It outlives the lock: a page begins after a position even when the lock
// that stood there is gone.
type position struct {
	Group int64  `json:"g,omitempty"`
	At    int64  `json:"a,omitempty"`
	Text  string `json:"t,omitempty"`
	Name  string `json:"n"`
	In    string `json:"c,omitempty"` // cluster
}

// position of the lock in this order. What is unknown comes last in either direction.
func (o Order) position(r *Row) position {
	p := position{Name: r.Name, In: r.Cluster}
	switch o.By {
	case "name":
		p.Text = r.Name
	case "owner":
		p.Text = strings.ToLower(r.Owner)
	case "host":
		p.Text = r.Hostname
	case "held":
		p.At = Instant(r.LockedAt)
	case "alert":
		p.At = Instant(r.alertAt())
	case "unlock":
		p.At = Instant(r.autoUnlockAt())
	case "waiters": // most of them first, then the longest wait
		p.Group = -r.waiters()
		p.At = Instant(r.Longest)
	default:
		p.Group = (r.urgency()+1)<<waitersBits - r.waiters()
		p.At = Instant(r.Longest)
		if r.Waiters == 0 {
			p.At = Instant(r.deadline())
		}
	}
	if o.unknown(&p) {
		p.Group = 1 << waitersBits
	} else if o.Reverse {
		p.Group = -p.Group
	}
	return p
}

// waitersBits is what the number of waiters may take of the group of a position, which has 32 bits while rows are
// sorted.
const waitersBits = 24

// waiters is how many wait for the lock, as far as a position can say it.
func (r *Row) waiters() int64 { return int64(min(r.Waiters, 1<<waitersBits-1)) }

// unknown reports whether the position lacks what this order sorts by.
func (o Order) unknown(p *position) bool {
	switch o.By {
	case "owner", "host":
		return p.Text == ""
	case MostUrgent:
		return false
	}
	return p.At == math.MaxInt64
}

// Instant is a time that sorts; unknown ones come last.
func Instant(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

func (o Order) compare(a, b *position) int {
	if c := cmp.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	c := cmp.Compare(a.At, b.At)
	if c == 0 && a.Text != b.Text {
		c = strings.Compare(o.textKey(a.Text), o.textKey(b.Text))
	}
	if o.Reverse {
		c = -c
	}
	if c == 0 {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.In, b.In))
	}
	return c
}

// textKey is what a text is sorted by.
func (o Order) textKey(text string) string {
	if o.By == "host" {
		return natural(text) + "\x00" + text // web-1 and web-01 differ
	}
	return text
}

// natural is a text that sorts like the given one with the numbers in it by value: web-9 before web-10. Before the
// digits of each number, without leading zeros, stands a digit, which compares to other characters as they do, and how
// many there are.
func natural(text string) string {
	key := make([]byte, 0, 2*len(text))
	for len(text) > 0 {
		digits := number(text)
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

// number is the digits at the start of s.
func number(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// sortings are all rows of a snapshot, sorted by what lists were sorted by.
type sortings struct {
	mu   sync.Mutex
	done map[Order][]*Row
}

// InOrder returns all rows sorted. The first one to ask waits; the others wait with it.
func (s *Snapshot) InOrder(o Order) []*Row {
	if o == (Order{By: "name"}) { // as the rows of a snapshot are
		return s.Rows
	}
	s.sorted.mu.Lock()
	defer s.sorted.mu.Unlock()
	rows, ok := s.sorted.done[o]
	if !ok {
		rows = o.Sort(s.Rows)
		if s.sorted.done == nil {
			s.sorted.done = map[Order][]*Row{}
		}
		s.sorted.done[o] = rows
	}
	return rows
}

// sortKey is a position in few bytes, because sorting is moving and comparing: a name is told by where its row stands
// among rows that are sorted by name.
type sortKey struct {
	at           int64
	text         string
	group, index int32
}

// Sort returns rows, which come sorted by name, in this order.
func (o Order) Sort(rows []*Row) []*Row {
	keys := make([]sortKey, len(rows))
	inChunks(len(rows), minChunk, func(from, to int) struct{} {
		for i := from; i < to; i++ {
			p := o.position(rows[i])
			keys[i] = sortKey{p.At, o.textKey(p.Text), int32(p.Group), int32(i)}
			if o.By == "name" {
				keys[i].at, keys[i].text = int64(i), ""
			}
		}
		return struct{}{}
	})
	sorted := make([]*Row, len(rows))
	slices.SortFunc(keys, o.compareKeys)
	for i, p := range keys {
		sorted[i] = rows[p.index]
	}
	return sorted
}

func (o Order) compareKeys(a, b sortKey) int {
	if a.group != b.group {
		return cmp.Compare(a.group, b.group)
	}
	c := cmp.Compare(a.at, b.at)
	if c == 0 {
		c = strings.Compare(a.text, b.text)
	}
	if o.Reverse {
		c = -c
	}
	if c == 0 {
		return cmp.Compare(a.index, b.index)
	}
	return c
}
