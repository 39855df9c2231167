package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// order is how a list is sorted.
type order struct {
	by      string
	reverse bool
}

// mostUrgent is the default order.
const mostUrgent = "urgency"

// orders are what a list can be sorted by.
func orders() []string {
	return []string{mostUrgent, "name", "owner", "host", "held", "alert", "unlock", "waiters"}
}

// parseOrder reads "unlock" or "-unlock"; anything else is the default order.
func parseOrder(s string) order {
	by, reverse := strings.CutPrefix(s, "-")
	if !slices.Contains(orders(), by) {
		return order{by: mostUrgent}
	}
	return order{by, reverse}
}

func (o order) String() string {
	if o.reverse {
		return "-" + o.by
	}
	return o.by
}

// position is where a lock stands in an order. It outlives the lock: a page begins after a position even when the lock
// that stood there is gone.
type position struct {
	Group int64  `json:"g,omitempty"`
	At    int64  `json:"a,omitempty"`
	Text  string `json:"t,omitempty"`
	Name  string `json:"n"`
}

// position of the lock in this order. What is unknown comes last in either direction.
func (o order) position(r *row) position {
	p := position{Name: r.Name}
	switch o.by {
	case "name":
		p.Text = r.Name
	case "owner":
		p.Text = strings.ToLower(r.Owner)
	case "host":
		p.Text = r.Hostname
	case "held":
		p.At = instant(r.LockedAt)
	case "alert":
		p.At = instant(r.verdict.AlertAt)
	case "unlock":
		p.At = instant(r.verdict.AutoUnlockAt)
	case "waiters": // the longest wait first
		p.At = instant(r.longest)
	default:
		p.Group = r.look.urgency()
		p.At = instant(r.deadline())
	}
	if p.Text == "" && (o.by == "owner" || o.by == "host") || p.At == math.MaxInt64 && o.by != mostUrgent {
		p.Group = 1
	} else if o.reverse && o.by == mostUrgent {
		p.Group = -p.Group
	}
	return p
}

// instant is a time that sorts; unknown ones come last.
func instant(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

func (o order) compare(a, b *position) int {
	if c := cmp.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	c := cmp.Compare(a.At, b.At)
	if c == 0 && a.Text != b.Text {
		c = o.compareText(a.Text, b.Text)
	}
	if o.reverse {
		c = -c
	}
	if c == 0 {
		return strings.Compare(a.Name, b.Name)
	}
	return c
}

func (o order) compareText(a, b string) int {
	if o.by == "host" {
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
