package lockmetrics_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acknowledged is a lock that somebody looks at until now+left.
func acknowledged(name string, alert, left time.Duration) *metadata.Record {
	r := lock(name, alert)
	r.Acknowledged = &metadata.Acknowledgement{By: "ann", Until: metadata.Time{Time: now.Add(left)}}
	return r
}

// The sum counts all locks; series have only those that have others, and never the name of a person.
func TestWhoLooksAtLocksIsCounted(t *testing.T) {
	w := newWorld(acknowledged("calm", time.Hour, time.Minute), acknowledged("late", -time.Minute, time.Minute),
		acknowledged("over", -time.Minute, 0), lock("other", -time.Minute))
	expect(t, lockmetrics.New(w.config()), `
# HELP unlocker_lock_acknowledged_until_timestamp_seconds When the acknowledgement of the lock ends.
# TYPE unlocker_lock_acknowledged_until_timestamp_seconds gauge
unlocker_lock_acknowledged_until_timestamp_seconds{lock="late"} 1.70000006e+09
# HELP unlocker_locks_acknowledged Held locks that somebody looks at.
# TYPE unlocker_locks_acknowledged gauge
unlocker_locks_acknowledged 2
`, "unlocker_lock_acknowledged_until_timestamp_seconds", "unlocker_locks_acknowledged")
}
