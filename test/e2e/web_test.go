package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// answers waits until a path answers with this status.
func answers(t *testing.T, addr, path string, status int) (body string) {
	t.Helper()
	return proctest.Answers(t, "http://"+addr+path, status)
}

// lint expects names and help texts as `promtool check metrics` does, of everything that a program shows.
func lint(t *testing.T, addr string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(answers(t, addr, "/metrics", http.StatusOK))).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// scrape returns the value of a gauge or counter whose labels include these pairs.
func scrape(t *testing.T, addr, name string, pairs ...string) (value float64, found bool) {
	t.Helper()
	for line := range strings.Lines(answers(t, addr, "/metrics", http.StatusOK)) {
		series, number, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "} ")
		if len(pairs) == 0 {
			series, number, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		}
		if !strings.HasPrefix(series+"{", name+"{") || !has(series, pairs) {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatal(err)
		}
		return value, true
	}
	return 0, false
}

func has(series string, pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(series, fmt.Sprintf("%s=%q", pairs[i], pairs[i+1])) {
			return false
		}
	}
	return true
}

// shows waits until a scrape has this value.
func shows(t *testing.T, addr string, want float64, name string, pairs ...string) {
	t.Helper()
	proctest.Eventually(t, name, func() error {
		if got, found := scrape(t, addr, name, pairs...); !found || got != want {
			return fmt.Errorf("%s%q is %v (%v), want %v", name, pairs, got, found, want)
		}
		return nil
	})
}

// hides waits until no scrape has such a series.
func hides(t *testing.T, addr, name string, pairs ...string) {
	t.Helper()
	etcdtest.Eventually(t, "the end of "+name, func() bool {
		_, found := scrape(t, addr, name, pairs...)
		return !found
	})
}
