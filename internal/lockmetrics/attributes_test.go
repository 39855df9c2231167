package lockmetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Whom an alert is for stands in labels of the series that it is made of.
func TestNamedAttributesAreLabelsOfALocksSeries(t *testing.T) {
	with := func(name string, attributes map[string]any) *metadata.Record {
		r := lock(name, -time.Minute)
		r.Attributes = attributes
		return r
	}
	w := newWorld(with("a", map[string]any{"team": "payments", "secret": "x"}), with("b", nil))
	config := w.config()
	config.Attributes = map[string]string{"team": "team"}
	c := lockmetrics.New(config)
	expect(t, c, `
# HELP unlocker_lock_alert_at_timestamp_seconds When the lock starts to alert.
# TYPE unlocker_lock_alert_at_timestamp_seconds gauge
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="a",owner="billing",team="payments"} 1.69999994e+09
unlocker_lock_alert_at_timestamp_seconds{hostname="host-1",lock="b",owner="billing",team=""} 1.69999994e+09
`, "unlocker_lock_alert_at_timestamp_seconds")
	for _, name := range []string{"locked", "auto_unlock_at"} {
		if n := testutil.CollectAndCount(c, "unlocker_lock_"+name+"_timestamp_seconds"); n != 2 {
			t.Errorf("%s: %d series, want 2", name, n)
		}
	}
}
