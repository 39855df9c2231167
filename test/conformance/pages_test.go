//go:build conformance

package conformance

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
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
	{"several locks of any kind, all or none", "together"},
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
	proctest.Must(t, err)
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

func titled(name string) string {
	if special, ok := map[string]string{"typescript": "TypeScript", "shell": "shell"}[name]; ok {
		return special
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

var update = flag.Bool("update", false, "write the tables of what each client has")

// TestRulesAreThere wants the rule that a failed check names to be a heading of the documentation.
func TestRulesAreThere(t *testing.T) {
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

// What the pages leave open to a driver, the suite has to take.

func TestAVerdictNamesItsHolderByItsUUID(t *testing.T) {
	for _, line := range []string{`{"holder":"u"}`, `{"holder":{"uuid":"u"}}`} {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Holder == nil || a.Holder.UUID != "u" {
			t.Errorf("%s is read as %+v, %v", line, a.Holder, err)
		}
	}
	var nobody answer
	if err := json.Unmarshal([]byte(`{"holder":null}`), &nobody); err != nil || nobody.Holder != nil {
		t.Errorf("null is read as %+v, %v", nobody.Holder, err)
	}
}

func TestOnlyTheOrderOfOtherFieldsDoesNotMatter(t *testing.T) {
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
