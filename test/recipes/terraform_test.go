package recipes_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/test/recipes"
)

// The requests are those of Terraform: two runs, each by way of either replica of the server.
func TestOneTerraformRunAtATime(t *testing.T) {
	s := locktest.NewInMemory(t)
	inspector, err := inspect.New(s.Etcd(), inspect.Options{})
	proctest.Must(t, err)
	var replicas [2]recipes.Terraform
	for i := range replicas {
		replicas[i] = recipes.Terraform{Etcd: s.Etcd(), Locks: s.Client(mutex.Options{}), Inspect: inspector,
			Longest: time.Hour}
	}
	const ana = `{"ID":"1","Operation":"Apply","Who":"ana@ci","Version":"1","Created":"2026-08-01T03:00:00Z","Info":""}`
	const ben = `{"ID":"2","Operation":"Plan","Who":"ben@laptop"}`
	for i, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/prod", "", 200, ""},
		{"LOCK", "/prod", ana, 200, ""},
		{"LOCK", "/prod", ana, 200, ""}, // again, because the answer was lost
		{"LOCK", "/prod", ben, 423, ana},
		{"LOCK", "/dev", ben, 200, ""},
		{"POST", "/prod?ID=1", strings.Repeat("x", 1_000_001), 413, "too large"},
		{"POST", "/prod?ID=1", "state 1", 200, ""},
		{"POST", "/prod?ID=2", "state 2", 423, ana},
		{"UNLOCK", "/prod", ben, 423, ana},
		{"UNLOCK", "/prod", ana, 200, ""},
		{"UNLOCK", "/prod", ana, 200, ""},
		{"POST", "/prod?ID=1", "too late", 409, "no longer held"},
		{"LOCK", "/prod", ben, 200, ""},
		{"GET", "/prod", "", 200, "state 1"},
	} {
		w := httptest.NewRecorder()
		replicas[i%2].ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, w.Body, c.status, c.answer)
		}
	}
	s.Hold("terraform/ops", mutex.Owner("kim"))
	w := httptest.NewRecorder()
	replicas[0].ServeHTTP(w, httptest.NewRequest("LOCK", "/ops", strings.NewReader(ana)))
	want := `"Who":"kim","Version":"","Created":"2`
	if w.Code != http.StatusLocked || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}
