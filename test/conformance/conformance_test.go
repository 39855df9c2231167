//go:build conformance

package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// check is one thing that is demanded of clients.
type check struct {
	name  string
	rule  string   // the section of docs/ that it checks
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
		deadlineChecks(), kindChecks(), etcdChecks(), hostileChecks(), otherChecks(), orderlyChecks(), boundChecks(),
		endpointChecks())
}

func TestConformance(t *testing.T) {
	t.Parallel()
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

// pairs are all pairs of clients, each with itself, too. The short set is a ring: each client with the next one, so
// that each is once the first and once the second. Counters and queues have two processes of each, which meet their
// own kind.
func pairs(clients []*client, orders bool) (all [][2]*client) {
	for i, a := range clients {
		for j, b := range clients {
			switch {
			case testing.Short() && j != (i+1)%len(clients):
			case !testing.Short() && j < i && !orders:
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
	cells map[string]map[string]string // ok, FAILED or not claimed, by check and by client or pair
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
			result := "ok"
			if t.Failed() {
				result = "FAILED"
				t.Logf("%s: %s (docs/%s)", c.name, c.wants, c.rule)
			}
			m.note(c.name, label, result)
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

// print prints a table of what each client does alone, and one of pairs.
func (m *matrix) print(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-30s", "each client")
	for _, c := range m.clients {
		fmt.Fprintf(&b, " %-*s", max(11, len(c.name)), c.name)
	}
	var both []check
	for _, c := range checks() {
		switch {
		case m.cells[c.name] == nil:
		case c.pair != nil:
			both = append(both, c)
		default:
			fmt.Fprintf(&b, "\n%-30s", c.name)
			for _, one := range m.clients {
				fmt.Fprintf(&b, " %-*s", max(11, len(one.name)), cmp.Or(m.cells[c.name][one.name], "."))
			}
		}
	}
	if len(both) > 0 {
		m.printPairs(&b, both)
	}
	fmt.Println(b.String())
}

// printPairs has a line for each pair and a column for each check.
func (m *matrix) printPairs(b *strings.Builder, both []check) {
	fmt.Fprintf(b, "\n\npairs")
	for i, c := range both {
		fmt.Fprintf(b, "\n  P%d %s", i+1, c.name)
	}
	fmt.Fprintf(b, "\n%-30s", "")
	for i := range both {
		fmt.Fprintf(b, " %-6s", fmt.Sprint("P", i+1))
	}
	for _, p := range pairs(m.clients, true) {
		label := p[0].name + "+" + p[1].name
		line := ""
		for _, c := range both {
			line += fmt.Sprintf(" %-6s", cmp.Or(m.cells[c.name][label], "."))
		}
		if strings.Trim(line, " .") != "" { // else its other order has them all
			fmt.Fprintf(b, "\n%-30s%s", label, line)
		}
	}
}
