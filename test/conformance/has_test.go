//go:build conformance

package conformance

import (
	"os"
	"strings"
	"testing"
)

// Marks around the table of what each client has, in README.md.
const (
	hasBegins = "<!-- What each client has. -->\n"
	hasEnds   = "<!-- The end of it. -->\n"
)

// has are the rows of that table: what a client must claim for it.
var has = []struct{ row, need string }{
	{"deadlines, fencing token, loss noticed", "basic"},
	{"waits in one queue with all others", "queue"},
	{"semaphores", "semaphore"},
	{"readers and writers", "read-write"},
	{"a job once per period over all machines", "once"},
	{"a period given back by a job that failed", "back"},
	{"several locks, all or none", "together"},
	{"several locks, of mixed kinds", "mixed"},
	{"a leader", "leader"},
	{"tasks, writes with a lock", "jobs"},
}

// TestHas wants the table in README.md to be what the drivers of all clients say.
func TestHas(t *testing.T) {
	if *clientDirs != "" || *broken != "" {
		return // the table is about all clients
	}
	const page = "../../README.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), hasBegins)
	_, after, closed := strings.Cut(rest, hasEnds)
	want := before + hasBegins + hasTable(findClients(t)) + hasEnds + after
	switch {
	case !found || !closed:
		t.Errorf("%s is a page without the marks of the table", page)
	case *update:
		err = os.WriteFile(page, []byte(want), 0o600)
	case want != string(text):
		t.Errorf("the table of what each client has is not up to date in %s: go test -tags conformance "+
			"./test/conformance -run TestHas -args -update", page)
	}
	if err != nil {
		t.Error(err)
	}
}

// hasTable has a column for each client.
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
			if c.claims([]string{h.need}) {
				b.WriteString("yes")
			}
			b.WriteString("|")
		}
		b.WriteString("\n")
	}
	return b.String() + "\n"
}

// titled is how a page writes the name of a client.
func titled(name string) string {
	if special, ok := map[string]string{"typescript": "TypeScript", "shell": "shell"}[name]; ok {
		return special
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
