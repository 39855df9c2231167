package locks

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Order is how a list is sorted.
type Order struct {
	By      string
	Reverse bool
}

// MostUrgent is the default order: by state; then by the most waiters and the longest wait; then by deadline.
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

// urgency orders states: a malformed lock with waiters is as urgent as one that alerts.
func (r *Row) urgency() int64 {
	if r.Display == metadata.StateMalformed && r.Waiters > 0 {
		return int64(metadata.StateAlerting.Urgency())
	}
	return int64(r.Display.Urgency())
}

// deadline returns the time of the next automatic change of the lock; zero = none.
func (r *Row) deadline() time.Time {
	v := r.Verdict()
	switch {
	case r.Display == metadata.StateHeld && !v.AlertAt.IsZero():
		return v.AlertAt
	case v.AutoUnlockAt.IsZero(), !v.RemoveAt.IsZero() && v.RemoveAt.Before(v.AutoUnlockAt):
		return v.RemoveAt
	}
	return v.AutoUnlockAt
}

// waiters returns how many wait for the lock, up to the most that a position can hold.
func (r *Row) waiters() int64 { return int64(min(r.Waiters, 1<<waitersBits-1)) }

// waitersBits is how many bits of a position's group the number of waiters may take. The group has 32 bits while rows
// are sorted.
const waitersBits = 24

// Position is the place of a lock in an order. It outlives the lock: a page can begin after a position even if its lock
// is gone.
type Position struct {
	Group int64  `json:"g,omitempty"`
	At    int64  `json:"a,omitempty"`
	Text  string `json:"t,omitempty"`
	Name  string `json:"n"`
}

// Position returns the position of the lock in this order. Unknown values come last in either direction.
func (o Order) Position(r *Row) Position {
	p := Position{Name: r.Name}
	switch o.By {
	case "name":
		p.Text = r.Name
	case "owner":
		p.Text = strings.ToLower(r.Owner)
	case "host":
		p.Text = r.Hostname
	case "held":
		p.At = protocol.Instant(r.LockedAt)
	case "alert":
		p.At = protocol.Instant(r.verdict.AlertAt)
	case "unlock":
		p.At = protocol.Instant(r.verdict.AutoUnlockAt)
	case "waiters": // most of them first, then the longest wait
		p.Group = -r.waiters()
		p.At = protocol.Instant(r.Longest)
	default:
		p.Group = (r.urgency()+1)<<waitersBits - r.waiters()
		p.At = protocol.Instant(r.Longest)
		if r.Waiters == 0 {
			p.At = protocol.Instant(r.deadline())
		}
	}
	if o.unknown(&p) {
		p.Group = 1 << waitersBits
	} else if o.Reverse {
		p.Group = -p.Group
	}
	return p
}

// unknown reports whether the position lacks the value that this order sorts by.
func (o Order) unknown(p *Position) bool {
	switch o.By {
	case "owner", "host":
		return p.Text == ""
	case MostUrgent:
		return false
	}
	return p.At == math.MaxInt64
}

// Compare orders two positions in this order.
func (o Order) Compare(a, b *Position) int {
	if c := cmp.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	c := cmp.Compare(a.At, b.At)
	if c == 0 && a.Text != b.Text {
		c = strings.Compare(o.TextKey(a.Text), o.TextKey(b.Text))
	}
	if o.Reverse {
		c = -c
	}
	if c == 0 {
		return strings.Compare(a.Name, b.Name)
	}
	return c
}

// TextKey returns the sort key of a text.
func (o Order) TextKey(text string) string {
	if o.By == "host" {
		return natural(text) + "\x00" + text // web-1 and web-01 differ
	}
	return text
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
