package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/proctest"
)

// Each command of the how-tos is run as it stands against a bare mutexdev, and prints what the page shows. A block that
// needs more than that says so in a comment that begins with "not run:".
func TestTheHowTosRunAsWritten(t *testing.T) {
	programs, err := proctest.Build("mutexdev", "mutexctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(programs.Remove)
	pages, err := filepath.Glob(filepath.Join(top, "docs", "howto", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, page := range pages {
		if filepath.Base(page) == "README.md" { // how to start what is started here
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) { ran += runHowTo(t, programs, page) })
	}
	if ran < 10 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// runHowTo runs the blocks of a page in one terminal, and returns how many there were.
func runHowTo(t *testing.T, programs *proctest.Programs, page string) (ran int) {
	t.Helper()
	etcd := proctest.FreeAddr(t)
	dev := proctest.Start(t, programs.Command(t, "mutexdev", "--no-demo", "--etcd.listen-address="+etcd,
		"--unlocker.listen-address="+proctest.FreeAddr(t), "--web.listen-address="+proctest.FreeAddr(t)))
	dev.Prints(t, "In another terminal")
	shell := open(t, append(environment(t), "HOME="+t.TempDir(), "ETCDCTL_ENDPOINTS="+etcd,
		"PATH="+programs.Dir+":"+os.Getenv("PATH")))

	all := blocks(t, page)
	for i, b := range all {
		if b.language != "sh" || strings.HasPrefix(b.note, "not run: ") {
			continue
		}
		shown := ""
		if i+1 < len(all) && all[i+1].language == "text" {
			shown = all[i+1].text
		}
		printed := shell.run(t, b.text, func(string) bool { return false })
		if !matches(shown, printed) {
			t.Fatalf("%s:%d: the commands\n%s\nprint\n%s\nand the page shows\n%s", page, b.line, b.text, printed, shown)
		}
		ran++
	}
	shell.interrupt(t)
	return ran
}
