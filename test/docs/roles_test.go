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
	made := ""
	for _, flag := range []string{"--witness", "--force-unlock"} {
		cmd := programs.Command(t, "mutexctl", "etcd-setup", "--print", "--client=billing", "--enable-auth", flag)
		r := proctest.Run(t, cmd)
		if r.Code != 0 {
			t.Fatalf("%v: %s", cmd, r.Stderr)
		}
		made += "\n" + r.Stdout
	}
	role := regexp.MustCompile(`^\s*(etcdctl (?:role \S+|user grant-role) [^#]*)`)
	found := 0
	for _, page := range pages(t) {
		if !strings.HasPrefix(page, "docs/") {
			continue
		}
		for _, b := range blocks(t, filepath.Join(top, page)) {
			for line := range strings.Lines(b.text) {
				match := role.FindStringSubmatch(line)
				if match == nil || strings.Contains(line, "$") { // in a loop, where a test of its own runs it
					continue
				}
				found++
				if !strings.Contains(made, "\n"+strings.TrimSpace(match[1])+"\n") {
					t.Errorf("%s:%d: etcd-setup does not do %q", page, b.line, match[1])
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands were found", found)
	}
}
