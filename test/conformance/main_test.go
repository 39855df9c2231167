//go:build conformance

// Package conformance holds clients in all languages to docs/protocol.md: docs/conformance.md describes how.
//
// Each client is a driver process that reads requests and prints answers, one JSON object per line. etcd, unlocker,
// dashboard and mutexctl are real. A wire between a driver and etcd loses, delays and repeats messages.
package conformance

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/grpclog"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var programs *proctest.Programs

var (
	clientDirs  = flag.String("clients", "", "directories of clients, by commas; all of clients/* if empty")
	limit       = flag.Duration("limit", time.Minute, "how long anything may take: long, as the machine may be busy")
	broken      = flag.String("broken", "", "a Go driver with this fault is the only other client")
	programsDir = flag.String("programs", "", "directory of the programs; they are built if it is empty")
	protocolDir = flag.String("protocol", "../../docs/protocol", "directory of vectors.json and transactions.json")
)

func TestMain(m *testing.M) {
	etcdtest.Member()
	goDriverProcess()
	flag.Parse()
	// The gateway of the embedded etcd logs clients that disconnect.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *programsDir == "" {
		return proctest.Main(m, &programs, "unlocker", "mutexdash", "mutexctl")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	programs = &proctest.Programs{Dir: *programsDir, Root: root}
	return m.Run()
}

// findClients returns the Go client and those of the flag, each with its info.
func findClients(t *testing.T) []*client {
	all := []*client{goClient("")}
	dirs := strings.FieldsFunc(*clientDirs, func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case *broken != "":
		all = append(all, goClient(*broken))
	case len(dirs) == 0:
		found, err := filepath.Glob(filepath.Join(programs.Root, "clients", "*", "conformance"))
		proctest.Must(t, err)
		for _, dir := range found {
			dirs = append(dirs, filepath.Dir(dir))
		}
	}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(programs.Root, dir)
		}
		all = append(all, scriptClient(dir))
	}
	for i, c := range all {
		c.place = i
		c.info = c.start(t).must(request{"do": "info"})
		if c.info.Client == "" || !slices.Contains(c.info.Levels, "basic") ||
			slices.ContainsFunc(c.info.Levels, func(level string) bool { return !slices.Contains(levels, level) }) {
			t.Fatalf("%s: a client names itself, has at least the level basic, and no level but %v: %s", c.name, levels,
				c.info.line)
		}
	}
	return all
}

type check struct {
	name  string
	rule  string // the section of docs/ that it checks
	wants string // what is demanded, in a sentence
	needs string // levels, and features that info may say are lacking

	alone  func(*testing.T, *scene, *client)
	pair   func(t *testing.T, s *scene, a, b *client)
	orders bool // of a pair: both orders
	short  bool // belongs to the short set, too
}

var checks = slices.Concat(pureChecks, basicChecks, queueChecks, lossChecks, lostChecks, counterChecks, deadlineChecks,
	kindChecks, etcdChecks, hostileChecks, otherChecks, orderlyChecks, boundChecks, endpointChecks)

func TestConformance(t *testing.T) {
	t.Parallel()
	clients := findClients(t)
	w := newWorld(t)
	all := &results{cells: map[string]map[string][]string{}}
	t.Cleanup(all.print)
	for _, c := range checks {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.alone != nil {
				for _, one := range clients {
					all.of(t, c, func(t *testing.T) { c.alone(t, w.scene(t), one) }, one)
				}
			}
			if c.pair != nil {
				for _, p := range pairs(clients, c.orders) {
					all.of(t, c, func(t *testing.T) { c.pair(t, w.scene(t), p[0], p[1]) }, p[:]...)
				}
			}
		})
	}
}

// pairs returns all pairs of clients, also of each with itself. The short set is a ring, in which each client is once
// the first and once the second. Counters and queues have two processes of each, so that a client also meets itself.
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

type results struct {
	mu    sync.Mutex
	cells map[string]map[string][]string // clients and pairs by check and result
}

func (r *results) of(t *testing.T, c check, do func(*testing.T), who ...*client) {
	if *clientDirs != "" && !slices.ContainsFunc(who, func(one *client) bool { return one.place > 0 }) {
		return // Go alone, which nobody asked for
	}
	var names []string
	claimed := true
	for _, one := range who {
		names = append(names, one.name)
		claimed = claimed && one.claims(c.needs)
	}
	label := strings.Join(names, "+")
	if !claimed {
		r.note(c.name, "not claimed", label)
		return
	}
	t.Run(label, func(t *testing.T) {
		t.Parallel()
		t.Cleanup(func() {
			result := "ok"
			if t.Failed() {
				result = "FAILED"
				t.Logf("%s: %s (docs/%s)", c.name, c.wants, c.rule)
			}
			r.note(c.name, result, label)
		})
		do(t)
	})
}

func (r *results) note(check, result, label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cells[check] == nil {
		r.cells[check] = map[string][]string{}
	}
	r.cells[check][result] = append(r.cells[check][result], label)
}

func (r *results) print() {
	for _, c := range checks {
		for _, result := range slices.Sorted(maps.Keys(r.cells[c.name])) {
			fmt.Printf("%-30s %-11s %s\n", c.name, result, strings.Join(r.cells[c.name][result], " "))
		}
	}
}

// has are the rows of that table, with what a client must claim for each.
var has = []struct{ row, need string }{
	{"deadlines, fencing token, loss noticed", "basic"},
	{"waits in one queue with all others", "queue"},
	{"semaphores", "semaphore"},
	{"readers and writers", "read-write"},
	{"a job once for each tick or period, over all machines", "once"},
	{"a tick or period given back by a job that failed", "back"},
	{"several locks of any kind, all or none", "together"},
	{"a lock taken by one process, released by another", "reserve"},
	{"a leader", "leader"},
	{"tasks, writes with a lock", "jobs"},
}

// TestHas expects the table in README.md to match the drivers' claims.
func TestHas(t *testing.T) {
	if *clientDirs != "" || *broken != "" {
		return // the table is about all clients
	}
	proctest.GoldenPart(t, "../../README.md", *update,
		`<!-- What each client has. -->\n((?s:.*))<!-- The end of it. -->`, hasTable(findClients(t)))
}

func hasTable(clients []*client) string {
	var b strings.Builder
	b.WriteString("\n|what it can do|")
	for _, c := range clients {
		b.WriteString(titled(c.name) + "|")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(clients)) + "\n")
	for _, h := range has {
		b.WriteString("|" + h.row + "|")
		for _, c := range clients {
			if c.claims(h.need) {
				b.WriteString("yes")
			}
			b.WriteString("|")
		}
		b.WriteString("\n")
	}
	return b.String() + "\n"
}

func titled(name string) string {
	if name == "typescript" {
		return "TypeScript"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

var update = flag.Bool("update", false, "write the tables of what each client has")

// TestRulesExist expects every rule that a failed check names to be a heading of the documentation.
func TestRulesExist(t *testing.T) {
	dropped := regexp.MustCompile(`[^a-z0-9\- ]`)
	for _, c := range checks {
		page, anchor, _ := strings.Cut(c.rule, "#")
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		found := false
		for line := range strings.Lines(string(text)) {
			title := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#"))), "")
			found = found || strings.HasPrefix(line, "#") && strings.ReplaceAll(title, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s: there is no rule %s", c.name, c.rule)
		}
	}
}

// A JSON parser may lose the order of the other fields, which the suite must accept.
func TestOnlyOrderOfOtherFieldsIsIgnored(t *testing.T) {
	body := func(keys ...string) any {
		var operations []any
		for _, key := range keys {
			operations = append(operations, map[string]any{"request_put": map[string]any{"key": key}})
		}
		operations = append(operations, map[string]any{"request_delete_range": map[string]any{}})
		return inOneOrder(map[string]any{"success": operations})
	}
	want := body("uuid", "alert_at", "auto_unlock_at", "locked_at", "hostname")
	if diff := cmp.Diff(want, body("uuid", "alert_at", "auto_unlock_at", "hostname", "locked_at")); diff != "" {
		t.Errorf("other fields in another order (-want +got):\n%s", diff)
	}
	for _, other := range []any{
		body("alert_at", "uuid", "auto_unlock_at", "locked_at", "hostname"),
		body("uuid", "alert_at", "auto_unlock_at", "locked_at"),
		body("uuid", "alert_at", "auto_unlock_at", "locked_at", "purpose"),
	} {
		if cmp.Equal(want, other) {
			t.Errorf("%v passes for %v", other, want)
		}
	}
}
