package deploy

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

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
