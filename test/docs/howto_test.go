// Package docs holds the documentation to what it shows: the tutorial runs, every block of Go compiles, an etcd answers
// as docs/gateway.md says, and the bodies in docs/protocol/transactions.json are those of the Go client.
package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Each command of the how-tos is run as it stands against a bare mutexdev, and prints what the page shows. A block that
// needs more than that says so in a comment that begins with "not run:".
func TestHowTosRunAsWritten(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(top, "docs", "howto", "*.md"))
	proctest.Must(t, err)
	found := 0
	for _, page := range pages {
		if filepath.Base(page) == "README.md" { // how to start what is started here
			continue
		}
		steps := howTo(t, page)
		found += len(steps)
		if len(steps) > 0 {
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				runHowTo(t, page, steps)
			})
		}
	}
	if found < 10 {
		t.Errorf("only %d blocks of commands were found", found)
	}
}

// step is a block of commands, and what the page shows below it.
type step struct {
	block
	shown string
}

// howTo are the steps of a page that can be run.
func howTo(t *testing.T, page string) (steps []step) {
	t.Helper()
	all := blocks(t, page)
	for i, b := range all {
		if b.language != "sh" || strings.HasPrefix(b.note, "not run: ") {
			continue
		}
		steps = append(steps, step{block: b, shown: shown(all, i)})
	}
	return steps
}

// runHowTo runs the steps of a page in one terminal.
func runHowTo(t *testing.T, page string, steps []step) {
	t.Helper()
	etcd := proctest.FreeAddr(t)
	dev := proctest.Start(t, programs.Command(t, "mutexdev", "--no-demo", "--etcd.listen-address="+etcd,
		"--unlocker.listen-address="+proctest.FreeAddr(t), "--web.listen-address="+proctest.FreeAddr(t)))
	dev.Prints(t, "In another terminal")
	shell := open(t, append(environment(t), "HOME="+t.TempDir(), "ETCDCTL_ENDPOINTS="+etcd,
		"PATH="+programs.Dir+":"+os.Getenv("PATH")))
	defer shell.interrupt(t)
	for _, s := range steps {
		// All is shown by then: nobody waits for the jobs in the background.
		commands := strings.Replace(s.text, "show transcoding\n", "show transcoding\nkill $(jobs -p)\n", 1)
		shell.shows(t, fmt.Sprintf("%s:%d", page, s.line), commands, s.shown, false)
	}
}

// Whoever types the documentation's commands for etcd gets the roles that `mutexctl etcd-setup` makes, and no others.
func TestDocumentedRolesMatchEtcdSetup(t *testing.T) {
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

// programs are the binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	proctest.Overlap()
	os.Exit(proctest.Main(m, &programs, "mutexdev", "mutexctl"))
}

// top is the top of the repository.
var top = filepath.Join("..", "..")

// block is a fenced block of a page.
type block struct {
	language string
	server   string // of a block of HTTP: which one answers so
	text     string
	line     int    // of the first line of text, from 1
	note     string // the HTML comment on the line before the fence, which readers of the page do not see
}

// blocks reads the fenced blocks of a page, in their order.
func blocks(t *testing.T, page string) (found []block) {
	t.Helper()
	content, err := os.ReadFile(page)
	proctest.Must(t, err)
	fence := regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?([ \t]*)```(\\w*) *([^\n]*)\n(.*?)^[ \t]*```$")
	for _, parts := range fence.FindAllSubmatchIndex(content, -1) {
		part := func(i int) string { return string(content[max(0, parts[2*i]):max(0, parts[2*i+1])]) }
		text := strings.ReplaceAll("\n"+part(5), "\n"+part(2), "\n")
		found = append(found, block{language: part(3), server: part(4), text: text[1:], note: part(1),
			line: 1 + bytes.Count(content[:parts[10]], []byte("\n"))})
	}
	if fences := bytes.Count(content, []byte("```")); fences != 2*len(found) {
		t.Fatalf("%s has %d fences, and %d blocks", page, fences, len(found))
	}
	return found
}
