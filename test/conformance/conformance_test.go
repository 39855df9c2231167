//go:build conformance

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// check is one thing that is demanded of clients.
type check struct {
	name  string
	rule  string   // the section of docs/protocol.md that it checks
	wants string   // what is demanded, in a sentence
	needs []string // levels, and features that info may say are lacking

	alone  func(*testing.T, *world, *client)
	pair   func(t *testing.T, w *world, a, b *client)
	orders bool // of a pair: both orders
	short  bool // belongs to the short set, too
}

// checks are all of them, in the order of the matrix.
func checks() []check {
	return slices.Concat(pureChecks(), basicChecks(), queueChecks(), lossChecks(), lostChecks(), counterChecks(),
		deadlineChecks(), etcdChecks(), hostileChecks())
}

func TestConformance(t *testing.T) {
	clients := findClients(t)
	w := newWorld(t)
	m := &matrix{clients: clients, cells: map[string]map[string]string{}}
	t.Cleanup(func() { m.print(t) })
	for _, c := range checks() {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.alone != nil {
				for _, one := range clients {
					m.run(t, c, one.name, []*client{one}, func(t *testing.T) { c.alone(t, w, one) })
				}
			}
			if c.pair != nil {
				for _, p := range pairs(clients, c.orders) {
					m.run(t, c, p[0].name+"+"+p[1].name, p[:], func(t *testing.T) { c.pair(t, w, p[0], p[1]) })
				}
			}
		})
	}
}

// pairs are all pairs of clients, each with itself, too. The short set has each with itself, with Go and with the next.
func pairs(clients []*client, orders bool) (all [][2]*client) {
	for i, a := range clients {
		for j, b := range clients {
			switch {
			case j < i && !orders:
			case testing.Short() && i != j && i != 0 && j != 0:
			default:
				all = append(all, [2]*client{a, b})
			}
		}
	}
	return all
}

// matrix has what came of each check for each client and pair.
type matrix struct {
	clients []*client

	mu    sync.Mutex
	order []string
	cells map[string]map[string]string
}

// run makes a check with these clients and notes the result.
func (m *matrix) run(t *testing.T, c check, label string, who []*client, do func(*testing.T)) {
	for _, one := range who {
		if !one.claims(c.needs) {
			m.note(c.name, label, "not claimed")
			return
		}
	}
	t.Run(label, func(t *testing.T) {
		t.Parallel()
		t.Cleanup(func() {
			if t.Failed() {
				m.note(c.name, label, "FAILED")
				t.Logf("%s: %s (docs/protocol.md#%s)", c.name, c.wants, c.rule)
			} else {
				m.note(c.name, label, "ok")
			}
		})
		do(t)
	})
}

func (m *matrix) note(name, label, result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cells[name] == nil {
		m.cells[name] = map[string]string{}
	}
	m.cells[name][label] = result
}

// print prints a table of clients for what each does alone, and one of pairs.
func (m *matrix) print(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var alone []string
	for _, c := range m.clients {
		alone = append(alone, c.name)
	}
	var both []string
	for _, p := range pairs(m.clients, true) {
		both = append(both, p[0].name+"+"+p[1].name)
	}
	fmt.Println(m.table("each client", alone, func(c check) bool { return c.alone != nil }))
	fmt.Println(m.table("pairs", both, func(c check) bool { return c.pair != nil }))
}

// table is one line for each check and column for each label.
func (m *matrix) table(title string, labels []string, in func(check) bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-34s", title)
	for _, label := range labels {
		fmt.Fprintf(&b, " %-*s", max(11, len(label)), label)
	}
	for _, c := range checks() {
		cells := m.cells[c.name]
		if !in(c) || cells == nil {
			continue
		}
		fmt.Fprintf(&b, "\n%-34s", c.name)
		for _, label := range labels {
			result := cells[label]
			if result == "" {
				result = "."
			}
			fmt.Fprintf(&b, " %-*s", max(11, len(label)), result)
		}
	}
	return b.String()
}
