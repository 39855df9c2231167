package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Each command of the how-tos is run as it stands against a bare mutexdev, and prints what the page shows. A block that
// needs more than that says so in a comment that begins with "not run:".
func TestTheHowTosRunAsWritten(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(top, "docs", "howto", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
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
		s := step{block: b}
		if i+1 < len(all) && all[i+1].language == "text" {
			s.shown = all[i+1].text
		}
		steps = append(steps, s)
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

	for _, s := range steps {
		printed := shell.run(t, s.text, func(string) bool { return false })
		if !matches(s.shown, printed) {
			t.Fatalf("%s:%d: the commands\n%s\nprint\n%s\nand the page shows\n%s", page, s.line, s.text, printed,
				s.shown)
		}
	}
	shell.interrupt(t)
}
