package deploy

import (
	"fmt"
	"net/http"
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

// answers waits until the URL answers with the status. If the program ends instead, there is nothing to wait for.
func answers(t *testing.T, p *proctest.Process, client *http.Client, url string, status int) {
	t.Helper()
	proctest.Eventually(t, url, func() error {
		got, _, err := proctest.Get(client, url)
		if err == nil && got == status {
			return nil
		}
		if !p.Running() {
			t.Fatalf("the program ended: %s", p.Output())
		}
		if err == nil {
			err = fmt.Errorf("status %d, want %d", got, status)
		}
		return err
	})
}
