package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// answers waits until a path answers with this status.
func answers(t *testing.T, addr, path string, status int) (body string) {
	t.Helper()
	return proctest.Answers(t, "http://"+addr+path, status)
}

// samples are the answer of one scrape. A scrape that Prometheus would refuse fails the test.
type samples map[string]*dto.MetricFamily

func scrape(t *testing.T, addr string) samples {
	t.Helper()
	status, body, err := proctest.Get(http.DefaultClient, "http://"+addr+"/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("scrape: status %d, %v: %s", status, err, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	return families
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

// value is the value of a gauge or counter whose labels include these pairs.
func (s samples) value(name string, pairs ...string) (float64, error) {
	for _, m := range s[name].GetMetric() {
		if !has(m, pairs) {
			continue
		}
		if m.GetCounter() != nil {
			return m.GetCounter().GetValue(), nil
		}
		return m.GetGauge().GetValue(), nil
	}
	return 0, fmt.Errorf("no %s%q", name, pairs)
}

func has(m *dto.Metric, pairs []string) bool {
	found := 0
	for i := 0; i < len(pairs); i += 2 {
		for _, l := range m.GetLabel() {
			if l.GetName() == pairs[i] && l.GetValue() == pairs[i+1] {
				found++
			}
		}
	}
	return 2*found == len(pairs)
}

// shows waits until a scrape has this value.
func shows(t *testing.T, addr string, want float64, name string, pairs ...string) {
	t.Helper()
	proctest.Eventually(t, name, func() error {
		got, err := scrape(t, addr).value(name, pairs...)
		if err == nil && got != want {
			err = fmt.Errorf("%s%q is %v, want %v", name, pairs, got, want)
		}
		return err
	})
}

// hides waits until no scrape has such a series.
func hides(t *testing.T, addr, name string, pairs ...string) {
	t.Helper()
	proctest.Eventually(t, name, func() error {
		if _, err := scrape(t, addr).value(name, pairs...); err == nil {
			return errors.New("a series is left")
		}
		return nil
	})
}
