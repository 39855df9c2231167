package lockmetrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// hostile are names that strangers may write.
var hostile = []string{
	"", "a", "a/b", "ab", `quote " and \ backslash`, "<script>alert(1)</script>", "line\nbreak", "nul\x00", "bell\a",
	"esc\x1b[31m",
	"\xff\xfe", "\xff\xfd", "half \xe2\x82", "\u202egnp.exe", "\u2066isolated\u2069", "zero\u200bwidth", "\u2028",
	"naïve", "日本語", "👩‍👩‍👧",
	strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 256), strings.Repeat("x", 255) + "y",
	strings.Repeat("é", 64), strings.Repeat("é", 65), strings.Repeat("x", 127) + "é", strings.Repeat("x", 100_000),
	strings.Repeat("\xff", 200), strings.Repeat("\xff", 201), "{}", "${x}", "{{.}}", "%00",
}

// gather is one scrape; it fails the test when Prometheus would refuse it.
func gather(t *testing.T, c ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c...)
	families, err := registry.Gather()
	proctest.Must(t, err)
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

func TestHostileTextBecomesShortPrintableLabels(t *testing.T) {
	w := newWorld()
	for _, name := range hostile {
		r := lock(name, -time.Minute)
		r.Owner = name
		r.Hostname = name
		r.Purpose = name
		w.locks = append(w.locks, r)
	}
	families := gather(t, lockmetrics.New(w.config()))
	series := families["unlocker_lock_alert_at_timestamp_seconds"].GetMetric()
	if len(series) != len(hostile) {
		t.Errorf("%d series for %d locks", len(series), len(hostile))
	}
	purposes := families["unlocker_lock_info"].GetMetric()
	if want := len(hostile) - 1; len(purposes) != want { // one is empty
		t.Errorf("%d purposes of %d locks that have one", len(purposes), want)
	}
	for _, m := range slices.Concat(series, purposes) {
		for _, l := range m.GetLabel() {
			v := l.GetValue()
			if len(v) > 128 || !utf8.ValidString(v) ||
				strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				t.Errorf("label %s: %d bytes, %q", l.GetName(), len(v), v)
			}
		}
	}
	if n := families["unlocker_lock_series_dropped"].GetMetric()[0].GetGauge().GetValue(); n != 0 {
		t.Errorf("%v locks were dropped", n)
	}
}

func TestDuplicateLabelIsDroppedAndCounted(t *testing.T) {
	long := strings.Repeat("x", 200)
	stolen := lockLabels(t, lock(long, -time.Minute))[0]
	w := newWorld(lock(stolen, -time.Second), lock(long, -time.Minute))
	families := gather(t, lockmetrics.New(w.config()))
	series := families["unlocker_lock_alert_at_timestamp_seconds"].GetMetric()
	if len(series) != 1 || series[0].GetGauge().GetValue() != float64(now.Unix()-60) {
		t.Errorf("want the series of the lock that is overdue for longer, got %v", series)
	}
	if n := families["unlocker_lock_series_dropped"].GetMetric()[0].GetGauge().GetValue(); n != 1 {
		t.Errorf("%v locks dropped, want 1", n)
	}
	if n := families["unlocker_locks"].GetMetric()[1].GetGauge().GetValue(); n != 2 {
		t.Errorf("%v alerting locks counted, want both", n)
	}
}

func TestTimesOfAllCenturiesAreShown(t *testing.T) {
	w := newWorld()
	for i, at := range []string{"0000000000", "0000000001", "9999999999.999999999", "1700000000.5"} {
		parsed, err := metadata.ParseTime(at)
		proctest.Must(t, err)
		r := lock(strings.Repeat("x", i+1), 0)
		r.LockedAt = parsed
		r.AlertAt = parsed
		r.AutoUnlockAt = parsed
		w.locks = append(w.locks, r)
	}
	config := w.config()
	config.Series = lockmetrics.SeriesAll
	got := gather(t, lockmetrics.New(config))["unlocker_lock_auto_unlock_at_timestamp_seconds"].GetMetric()
	for i, want := range []float64{0, 1, 1e10, 1700000000.5} {
		if v := got[i].GetGauge().GetValue(); v != want {
			t.Errorf("lock %d is to be removed at %v, want %v", i, v, want)
		}
	}
}

func lockLabels(t *testing.T, locks ...*metadata.Record) (names []string) {
	t.Helper()
	all := gather(t, lockmetrics.New(newWorld(locks...).config()))
	for _, m := range all["unlocker_lock_alert_at_timestamp_seconds"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "lock" {
				names = append(names, l.GetValue())
			}
		}
	}
	return names
}
