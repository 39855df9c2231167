package docs

import (
	"fmt"
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
