package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/test/recipes"
)

const ticks = 60

// replica is a scheduler on a machine whose clock is ahead.
type replica struct {
	ahead time.Duration
	locks *mutex.Client
	runs  *runs
}

// runs counts the runs of a job for each tick.
type runs struct {
	sync.Mutex
	of map[time.Time]int
}

func (r replica) now() time.Time { return time.Now().Add(r.ahead) }

func (r replica) job(ctx context.Context) error {
	last, err := jobs.LastPeriod(ctx, r.locks, "report")
	r.runs.Lock()
	defer r.runs.Unlock()
	r.runs.of[last.Start]++
	return err
}

func TestJobRunsOnceForEachTick(t *testing.T) {
	for name, library := range map[string]struct {
		every time.Duration
		start func(t *testing.T, r replica)
	}{"robfig": {time.Minute, startRobfig}, "gocron": {time.Second, startGocron}} {
		for _, replicas := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s, %d replicas", name, replicas), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := locktest.NewInMemory(t)
					ran := &runs{of: map[time.Time]int{}}
					for i := range replicas {
						r := replica{ahead: -time.Duration(i) * time.Second / time.Duration(replicas-1), runs: ran}
						r.locks = s.Client(mutex.Options{Now: func() time.Time { // a job starts a little late
							return r.now().Add(time.Duration(i+1) * 30 * time.Millisecond)
						}})
						library.start(t, r)
					}
					began := time.Now()
					time.Sleep(ticks*library.every + library.every/2)
					for i := range ticks {
						tick := began.Add(time.Duration(i+1) * library.every).UTC()
						if n := ran.of[tick]; n != 1 {
							t.Errorf("%d runs for %v", n, tick)
						}
					}
				})
			})
		}
	}
}

func startRobfig(t *testing.T, r replica) {
	late := func(job cron.Job) cron.Job { // the library has no other clock
		return cron.FuncJob(func() {
			time.Sleep(-r.ahead)
			job.Run()
		})
	}
	c := cron.New(cron.WithChain(late))
	if err := recipes.Once(c, "* * * * *", "report", r.locks, r.job); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { <-c.Stop().Done() })
}

type clock struct {
	clockwork.Clock
	replica
}

func (c clock) Now() time.Time { return c.now() }

func startGocron(t *testing.T, r replica) {
	s, err := gocron.NewScheduler(gocron.WithClock(clock{clockwork.NewRealClock(), r}), gocron.WithLocation(time.UTC),
		gocron.WithDistributedLocker(recipes.Locker{Locks: r.locks, Resolution: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	job := gocron.NewTask(func(ctx context.Context) error { return r.job(ctx) })
	if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), job, gocron.WithName("report")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}
