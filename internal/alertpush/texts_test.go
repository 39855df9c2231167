package alertpush_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// What is pushed reads as what Prometheus' rules make of the same lock. promtool tests the rules against this file, and
// internal/diagnosis/alerttext compares all other texts with it.
func TestWhatIsNextReadsAsInTheRules(t *testing.T) {
	b, err := os.ReadFile("../../deploy/prometheus/tests/locks.test.yaml")
	proctest.Must(t, err)
	rules := normal(string(b))
	inWorld(t, func(w *world) {
		defer w.start(w.config())()
		w.holds(w.lock("l", func(r *metadata.Record) { r.AutoUnlockAt = r.AlertAt.Add(time.Hour + time.Second) }))
		wants := func(name string, told []posted) {
			i := slices.IndexFunc(told, func(p posted) bool { return p.Labels["alertname"] == name })
			if i < 0 || !strings.Contains(rules, normal(told[i].Annotations["next"])) {
				w.Errorf("%s is not pushed as in the rules: %v", name, told)
			}
		}
		wants("UnlockerLockAlerting", w.after(90*time.Second))
		w.holds(w.lock("l", func(r *metadata.Record) {
			r.AlertAt = time.Time{}
			r.AutoUnlockAt = time.Now().Add(-10 * time.Minute)
		}))
		wants("UnlockerLockExpired", w.after(time.Second))
	})
}

// normal is a text on one line, with one time, one quote, and one deadline.
func normal(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllString(text, "T")
}
