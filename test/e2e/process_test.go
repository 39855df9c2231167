package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, programs.Command(t, name, args...))
}

// command runs a program to its end.
func command(t *testing.T, name string, args ...string) proctest.Result {
	t.Helper()
	return proctest.Run(t, programs.Command(t, name, args...))
}

// objects are the log lines of a program, one JSON object each. Whatever is written to the log, hostile text included,
// has to be one.
func objects(t *testing.T, p *proctest.Process) (all []map[string]any) {
	t.Helper()
	text := p.Output()
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("not a JSON object: %q", line)
		}
		all = append(all, object)
	}
	return all
}
