package locks

import (
	"cmp"
	"math"
	"slices"
	"strings"
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
		c = o.compareText(a.Text, b.Text)
	}
	if o.Reverse {
		c = -c
	}
	if c == 0 {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.In, b.In))
	}
	return c
}

func (o Order) compareText(a, b string) int {
	if o.By == "host" {
		return natural(a, b)
	}
	return strings.Compare(a, b)
}

// natural compares texts with the numbers in them by value: web-9 before web-10.
func natural(a, b string) int {
	for i, j := 0, 0; ; {
		switch {
		case i == len(a) || j == len(b):
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
		case digit(a[i]) && digit(b[j]):
			x := number(a[i:])
			y := number(b[j:])
			i, j = i+len(x), j+len(y)
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
		case a[i] != b[j]:
			return cmp.Compare(a[i], b[j])
		default:
			i, j = i+1, j+1
		}
	}
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// number is the digits at the start of s.
func number(s string) string {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return s[:n]
}
