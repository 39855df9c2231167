// Package recipes has the glue between other libraries and our locks that docs/howto/recipes.md names.
package recipes

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Once adds a job to robfig/cron that runs on one replica for each tick. Add it before cron starts.
func Once(c *cron.Cron, spec, name string, locks *mutex.Client, fn func(context.Context) error) error {
	var id cron.EntryID
	id, err := c.AddFunc(spec, func() {
		ctx := context.Background()
		if _, err := jobs.OnceAt(ctx, locks, name, c.Entry(id).Prev, fn); err != nil {
			locks.Options().Logger.ErrorContext(ctx, "a job failed", "job", name, "error", err)
		}
	})
	return err
}

// Locker is a gocron.Locker. Resolution is that of the schedule: a minute, or a second for cron with seconds. gocron
// does not pass the tick on, so a job that starts later than half of that takes the next one.
type Locker struct {
	Locks      *mutex.Client
	Resolution time.Duration
}

// Lock takes the lock of a job for the tick that has just come.
func (l Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	tick := l.Locks.Options().Now().Round(l.Resolution)
	taken, err := jobs.TryLockAt(ctx, l.Locks, job, tick)
	return held{taken}, err
}

type held struct{ *jobs.TickLock }

func (h held) Unlock(context.Context) error { return h.TickLock.Unlock() }
