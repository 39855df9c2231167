// Package deploy starts the real programs as deploy/ says they are started: the flags, variables, files and probes of
// the Helm chart and of the systemd units. Whether those are well written is tested beside them; here stands that they
// work.
//
// What needs the rendered chart has the build tag chart: `make chart` renders it first.
package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const repository = "../.."

// programs are the binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(proctest.Main(m, &programs, "unlocker", "mutexdash", "mutexctl"))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	proctest.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	proctest.Must(t, os.WriteFile(file, []byte(text), 0o600))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	proctest.Must(t, err)
	return string(text)
}

// start runs a program until the test ends, with these variables and no others.
func start(t *testing.T, environment []string, program string, args ...string) *proctest.Process {
	t.Helper()
	cmd := programs.Command(t, program, args...)
	cmd.Env = append([]string{}, environment...)
	cmd.Dir = "/"
	return proctest.Start(t, cmd)
}

// end asks a program to end and expects it to exit cleanly.
func end(t *testing.T, p *proctest.Process) {
	t.Helper()
	if code := p.Terminate(t); code != 0 {
		t.Errorf("%v ends with status %d", p, code)
	}
}
