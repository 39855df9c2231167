package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Whoever types the documentation's commands for etcd gets the roles that `mutexctl etcd-setup` makes, and no others.
func TestTheRolesInTheDocumentationAreThoseOfEtcdSetup(t *testing.T) {
	t.Parallel()
	made := map[string]bool{}
	for _, flag := range []string{"--witness", "--force-unlock"} {
		cmd := programs.Command(t, "mutexctl", "etcd-setup", "--print", "--client=billing", "--enable-auth", flag)
		r := proctest.Run(t, cmd)
		if r.Code != 0 {
			t.Fatalf("%v: %s", cmd, r.Stderr)
		}
		for line := range strings.Lines(r.Stdout) {
			made[strings.TrimSpace(line)] = true
		}
	}
	pages, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(top, "docs", "howto", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	role := regexp.MustCompile(`^\s*(etcdctl (?:role \S+|user grant-role) [^#]*)`)
	found := 0
	for _, page := range append(pages, more...) {
		for _, b := range blocks(t, page) {
			for line := range strings.Lines(b.text) {
				match := role.FindStringSubmatch(line)
				if match == nil || strings.Contains(line, "$") { // in a loop, where a test of its own runs it
					continue
				}
				found++
				if command := strings.TrimSpace(match[1]); !made[command] {
					t.Errorf("%s:%d: etcd-setup does not do %q", page, b.line, command)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands were found", found)
	}
}
