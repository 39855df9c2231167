package mutexmetrics_test

import (
	"context"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/clustermutex/unlocker/pkg/mutexmetrics"
)

// exemplars are those of a histogram in a scrape, as bucket=labels.
func (w *world) exemplars(histogram string) string {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.metrics)
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(response, request)
	var found []string
	line := regexp.MustCompile(`(?m)^` + histogram + `_bucket\{le="([^"]*)"\} \d+ # \{([^}]*)\}`)
	for _, m := range line.FindAllStringSubmatch(response.Body.String(), -1) {
		found = append(found, m[1]+": "+m[2])
	}
	return strings.Join(found, ", ")
}

type traceKey struct{}

// traced are options whose exemplars are what the context has as its trace.
func traced() mutexmetrics.Options {
	return mutexmetrics.Options{Exemplar: func(ctx context.Context) prometheus.Labels {
		id, _ := ctx.Value(traceKey{}).(string)
		if id == "" {
			return nil
		}
		return prometheus.Labels{"trace_id": id}
	}}
}

func trace(id string) context.Context { return context.WithValue(context.Background(), traceKey{}, id) }

func TestWaitsAndHoldsLeadToTheirTrace(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, c := range map[string]struct{ id, wait, hold string }{
		"a trace":          {id, `0.001: trace_id="` + id + `"`, `60.0: trace_id="` + id + `"`},
		"none":             {"", "", ""},
		"one too long":     {strings.Repeat("x", 200), "", ""},
		"one not in UTF-8": {"\xff", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, traced(), func(w *world) {
				l, err := w.locks.Lock(trace(c.id), "a")
				if err != nil {
					w.Fatal(err)
				}
				time.Sleep(time.Minute)
				if err := l.Unlock(); err != nil {
					w.Fatal(err)
				}
				w.want(`
					mutex_wait_seconds count 1
					mutex_hold_seconds count 1
					mutex_hold_seconds sum 60`)
				if got := w.exemplars("mutex_wait_seconds"); got != c.wait {
					w.Errorf("waits have the exemplars %q, want %q", got, c.wait)
				}
				if got := w.exemplars("mutex_hold_seconds"); got != c.hold {
					w.Errorf("holds have the exemplars %q, want %q", got, c.hold)
				}
			})
		})
	}
}

// Each hold has the trace of its own call, however it ends.
func TestALostHoldLeadsToItsTrace(t *testing.T) {
	bubble(t, traced(), func(w *world) {
		for _, name := range []string{"kept", "lost"} {
			if _, err := w.locks.TryLock(trace(name), name); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		w.server.ForceUnlock("lost", "wrong month")
		w.want(`mutex_lost_total forced 1`)
		if got := w.exemplars("mutex_hold_seconds"); got != `15.0: trace_id="lost"` {
			w.Errorf("holds have the exemplars %q", got)
		}
	})
}
