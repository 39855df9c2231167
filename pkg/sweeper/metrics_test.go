package sweeper_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// gather collects through a pedantic registry, which refuses duplicate series and labels that are not UTF-8.
func gather(t *testing.T, n *node) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	proctest.Must(t, registry.Register(n.Sweeper))
	gathered, err := registry.Gather()
	proctest.Must(t, err)
	if problems, err := promlint.NewWithMetricFamilies(gathered).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range gathered {
		families[f.GetName()] = f
	}
	return families
}

// sample returns the value of the series with these label values.
func sample(t *testing.T, n *node, name string, values ...string) float64 {
	t.Helper()
	for _, m := range gather(t, n)[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetValue())
		}
		if strings.Join(have, "|") == strings.Join(values, "|") {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

func TestRemovalMetricsHaveAttributeLabels(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(_ *node, c *sweeper.Config) {
			c.Attributes = []string{"team", "app"}
		})
		s.take("a", time.Second, 2*time.Minute, func(r *metadata.Record) {
			r.Attributes = map[string]any{"team": "payments"}
		})
		s.take("b", time.Second, 2*time.Minute, func(r *metadata.Record) {
			r.Attributes = map[string]any{"app": "settler", "team": "pay\x00ments"}
		})
		s.wait(2*time.Minute + skew + 10*time.Second)
		for _, labels := range [][]string{{"", "pod-1", "a", "billing", "test", "payments"},
			{"settler", "pod-1", "b", "billing", "test", "pay\ufffdments"}} {
			if sample(t, n, "unlocker_lock_last_auto_unlock_timestamp_seconds", labels...) <= 0 {
				t.Errorf("no removal with the labels %q", labels)
			}
		}
	})
}

func TestMetricsShowWhatHappened(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.delay = 20 * time.Millisecond
		n := s.join(t, ahead(3*time.Second))
		s.take("a", time.Second, 2*time.Minute, func(r *metadata.Record) { r.Purpose = "nightly invoices" })
		s.take("b", time.Second, 2*time.Minute)
		s.broken["b"] = errDown
		s.wait(2*time.Minute + skew + 10*time.Second)
		removedAt := float64(n.store.removals("a")[0].Add(3*time.Second).UnixMilli()) / 1000
		for name, c := range map[string]struct {
			got, want float64
		}{
			"one success":         {sample(t, n, "unlocker_removals_total", "success"), 1},
			"failures":            {sample(t, n, "unlocker_removals_total", "error"), 4},
			"alerts":              {sample(t, n, "unlocker_alerting_locks_total"), 2},
			"offset of the clock": {sample(t, n, "unlocker_clock_offset_seconds"), 2.999},
			"what it may be":      {sample(t, n, "unlocker_clock_tolerance_seconds"), 5},
			"one lag":             {sample(t, n, "unlocker_removal_lag_seconds"), 1},
			"the time of the removal": {sample(t, n, "unlocker_lock_last_auto_unlock_timestamp_seconds", "pod-1", "a",
				"billing", "nightly invoices"), removedAt},
		} {
			if c.got != c.want {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
		lag := gather(t, n)["unlocker_removal_lag_seconds"].GetMetric()[0].GetHistogram().GetSampleSum()
		if lag < .0199 || lag > .0201 {
			t.Errorf("lag %v s, want that of the commit, 20 ms", lag)
		}
		s.wait(time.Hour)
		if got := sample(t, n, "unlocker_lock_last_auto_unlock_timestamp_seconds", "pod-1", "a", "billing",
			"nightly invoices"); got != -1 {
			t.Errorf("still there after the retention: %v", got)
		}
	})
}

func TestLabelsAreBoundedAndDistinct(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		long := "x" + strings.Repeat("é", 100)
		var names []string // as the metrics of the locks write them
		for i, name := range []string{long + "1", long + "2", "\xff\xfe", "\xff"} {
			names = append(names, text.NameLabel(name))
			s.take(name, time.Second, 2*time.Minute, func(r *metadata.Record) {
				r.Owner = long + fmt.Sprint(i)
				r.Hostname = "\xffhost"
				r.Purpose = "\xff" + strings.Repeat(long, 4)
			})
		}
		s.wait(10 * time.Minute)
		series := gather(t, n)["unlocker_lock_last_auto_unlock_timestamp_seconds"].GetMetric()
		if len(series) != 4 {
			t.Errorf("%d series of four locks", len(series))
		}
		for _, m := range series {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); len(v) > 128 || !utf8.ValidString(v) || l.GetName() == "lock" &&
					!slices.Contains(names, v) {
					t.Errorf("label %s=%q", l.GetName(), v)
				}
			}
		}
	})
}

func TestOnlyTheNewestRemovalsHaveSeries(t *testing.T) {
	t.Parallel()
	simulate(t, func(t *testing.T, s *store) {
		s.delay = time.Millisecond
		s.takeMany(1500, 3000)
		s.wait(10 * time.Minute)
		n := s.join(t)
		s.wait(time.Minute)
		if len(s.removed) != 1500 {
			t.Fatalf("%d removed", len(s.removed))
		}
		got := testutil.CollectAndCount(n.Sweeper, "unlocker_lock_last_auto_unlock_timestamp_seconds")
		if got < 1000 || got > 1000+2*32 { // two batches may end at once
			t.Errorf("%d series", got)
		}
	})
}
