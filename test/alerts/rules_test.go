//go:build alerts

package alerts

import (
	"regexp"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestAlertsOfRulesReadAsThePageShows is the whole chain to the person: locks with teams in etcd, an unlocker,
// Prometheus with the shipped rules, Alertmanager with the shipped routes, receivers of every kind.
func TestAlertsOfRulesReadAsThePageShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceivers(t)
	now := time.Now().UTC().Truncate(time.Second)
	for lock, d := range map[string]metadata.Draft{
		"payments/settle": {Holder: metadata.Holder{Owner: "payments-settler"}, AlertAt: now.Add(-10 * time.Minute),
			Attributes: map[string]any{"team": "payments"}},
		"data/import": {Holder: metadata.Holder{Owner: "importer"}, AlertAt: now.Add(-20 * time.Minute),
			Attributes: map[string]any{"team": "data"}},
		"search/reindex": {Holder: metadata.Holder{Owner: "search-indexer"},
			AlertAt: now.Add(-2 * time.Hour)}, // past its deadline, too
	} {
		d.UUID = "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11"
		d.Hostname = "worker-3"
		d.Purpose = "nightly invoices"
		d.LockedAt = d.AlertAt.Add(-time.Hour)
		d.AutoUnlockAt = d.AlertAt.Add(time.Hour)
		w.write(lock, d)
	}
	u := w.unlocker("--dashboard.url=https://locks.example.org/", "--sweep.min-warning=1h")
	am := r.alertmanager()
	w.prometheus(am, []string{u.addr})

	for name, m := range map[string]message{
		"slack from rules":     r.wants("/slack#payments", "Lock payments/settle is held longer"),
		"mail from rules":      r.wants("payments-on-call@example.org", "Lock payments/settle is held longer"),
		"webhook from rules":   r.wants("/webhook", "data/import"),
		"pagerduty from rules": r.wants("/pagerduty", "search/reindex is past its deadline"),
		"opsgenie from rules":  r.wants("/opsgenie/v2/alerts", "search/reindex is past its deadline"),
	} {
		// They begin when Prometheus first sees them, and link to its page.
		m.body = regexp.MustCompile(`(Since: |"startsAt":")\d{4}-[0-9-]+[T ][0-9:.]+Z`).ReplaceAllStringFunc(m.body,
			func(found string) string {
				if found[0] == 'S' {
					return "Since: " + now.Format("2006-01-02 15:04:05Z")
				}
				return `"startsAt":"` + now.Format(time.RFC3339)
			})
		m.body = regexp.MustCompile(`"generatorURL":"[^"]*"`).ReplaceAllString(m.body,
			`"generatorURL":"http://prometheus.example.org/graph?…"`)
		r.shows(now, name, m)
	}
	proctest.Eventually(t, "the first deadline is not told beside the second",
		func() error { return inhibited(am, "UnlockerLockAlerting", "search/reindex") })
}
