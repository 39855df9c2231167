package lockmetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
)

// Alerts show what a lock is for. The text comes from a separate series, bounded like those of the lock, whose labels
// no hold changes.
func TestThePurposeHasASeriesWhereTheLockHasSome(t *testing.T) {
	w := newWorld()
	for i := range 20 {
		r := lock(fmt.Sprintf("late-%02d", i), -time.Minute*time.Duration(20-i))
		r.Purpose = "nightly invoices"
		w.locks = append(w.locks, r)
	}
	calm := lock("calm", time.Hour)
	silent := lock("silent", -time.Hour)
	calm.Purpose = "nobody needs to know"
	w.locks = append(w.locks, calm, silent)
	config := w.config()
	config.SeriesLimit = 3
	expect(t, lockmetrics.New(config), `
# HELP unlocker_lock_info What the lock was taken for, in its holder's words; always 1.
# TYPE unlocker_lock_info gauge
unlocker_lock_info{lock="late-00",purpose="nightly invoices"} 1
unlocker_lock_info{lock="late-01",purpose="nightly invoices"} 1
`, "unlocker_lock_info")
	config.Series = lockmetrics.SeriesNone
	expect(t, lockmetrics.New(config), "", "unlocker_lock_info")
}
