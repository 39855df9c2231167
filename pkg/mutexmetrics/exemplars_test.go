package mutexmetrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/pkg/mutexmetrics"
)

// exemplars are those of a histogram, by their label trace_id.
func (w *world) exemplars(histogram string) (found []string) {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.metrics)
	families, err := registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != histogram {
			continue
		}
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				found = append(found, l.GetName()+"="+l.GetValue())
			}
		}
	}
	return found
}

type traceKey struct{}

func TestWaitsLeadToTheirTrace(t *testing.T) {
	traced := mutexmetrics.Options{Exemplar: func(ctx context.Context) prometheus.Labels {
		id, _ := ctx.Value(traceKey{}).(string)
		if id == "" {
			return nil
		}
		return prometheus.Labels{"trace_id": id}
	}}
	for name, c := range map[string]struct{ id, want string }{
		"a trace":          {"4bf92f3577b34da6a3ce929d0e0e4736", "trace_id=4bf92f3577b34da6a3ce929d0e0e4736"},
		"none":             {"", ""},
		"one too long":     {strings.Repeat("x", 200), ""},
		"one not in UTF-8": {"\xff", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, traced, func(w *world) {
				l, err := w.locks.Lock(context.WithValue(context.Background(), traceKey{}, c.id), "a")
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
				if got := strings.Join(w.exemplars("mutex_wait_seconds"), ", "); got != c.want {
					w.Errorf("the wait has the exemplars %q, want %q", got, c.want)
				}
			})
		})
	}
}
