package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// job counts its runs.
type job struct {
	mu   sync.Mutex
	runs int
	err  error
}

func (j *job) run(context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs++
	return j.err
}

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, clock)
	if err != nil {
		panic(err)
	}
	return t
}

func TestJobRunsOncePerPeriod(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:17:00Z")
	one := client(s, func() time.Time { return now })
	two := client(s, func() time.Time { return now })
	var j job
	var inside metadata.Document
	ran, err := jobs.OncePer(t.Context(), one, "report", time.Hour, func(ctx context.Context) error {
		inside = s.AssertHeld("report")
		return j.run(ctx)
	}, jobs.LockOptions(mutex.Purpose("hourly")))
	if !ran || err != nil {
		t.Fatalf("the first call: %v, %v", ran, err)
	}
	if inside.Token == 0 || inside.Purpose != "hourly" || inside.Attributes["period"] != "2026-08-29T10:00:00Z" {
		t.Errorf("while it ran the record was %+v", inside.Record)
	}
	for _, clock := range []string{"2026-08-29T10:17:00Z", "2026-08-29T10:59:59.999Z", "2026-08-29T10:00:00Z"} {
		now = at(clock)
		for _, c := range []*mutex.Client{one, two} {
			if ran, err := jobs.OncePer(t.Context(), c, "report", time.Hour, j.run); ran || err != nil {
				t.Errorf("at %s: %v, %v", clock, ran, err)
			}
		}
	}
	p, err := jobs.LastPeriod(t.Context(), two, "report")
	if want := "taken 2026-08-29T10:17:00Z by billing on host-1, every 1h0m0s"; err != nil ||
		!p.Start.Equal(at("2026-08-29T10:00:00Z")) || p.Note != want {
		t.Errorf("the period is %+v, %v", p, err)
	}
	now = at("2026-08-29T11:00:00Z")
	if ran, err := jobs.OncePer(t.Context(), two, "report", time.Hour, j.run); !ran || err != nil {
		t.Errorf("in the next hour: %v, %v", ran, err)
	}
	s.AssertFree("report")
	if j.runs != 2 {
		t.Errorf("%d runs", j.runs)
	}
}

func TestBeginningsOfPeriods(t *testing.T) {
	s := locktest.NewInMemory(t)
	for i, c := range []struct {
		every  time.Duration
		offset time.Duration
		now    string
		want   string
	}{
		{time.Hour, 0, "2026-08-29T10:17:00+02:00", "2026-08-29T08:00:00Z"},
		{24 * time.Hour, 90 * time.Minute, "2026-08-29T01:29:59Z", "2026-08-28T01:30:00Z"},
		{24 * time.Hour, 90 * time.Minute, "2026-08-29T01:30:00Z", "2026-08-29T01:30:00Z"},
		{7 * 24 * time.Hour, 96 * time.Hour, "2026-08-29T12:00:00Z", "2026-08-24T00:00:00Z"}, // a Monday
		{time.Second, 0, "2026-08-29T10:17:00.999999999Z", "2026-08-29T10:17:00Z"},
		{1500 * time.Millisecond, 0, "1970-01-01T00:00:02Z", "1970-01-01T00:00:01.5Z"},
		{7*time.Hour + 13*time.Minute, 0, "1970-01-01T23:00:00Z", "1970-01-01T21:39:00Z"},
		{10 * 365 * 24 * time.Hour, 0, "2026-08-29T10:17:00Z", "2019-12-20T00:00:00Z"},
		{time.Hour, 0, "1970-01-01T00:10:00Z", "1970-01-01T00:00:00Z"},
	} {
		t.Run(fmt.Sprint(c.every, " at ", c.now), func(t *testing.T) {
			one := client(s, func() time.Time { return at(c.now) })
			name := fmt.Sprint("job ", i)
			ran, err := jobs.OncePer(t.Context(), one, name, c.every, new(job).run, jobs.PeriodOffset(c.offset))
			p, _ := jobs.LastPeriod(t.Context(), one, name)
			if !ran || err != nil || !p.Start.Equal(at(c.want)) {
				t.Errorf("%v, %v: the period began at %v, want %s", ran, err, p.Start, c.want)
			}
		})
	}
}

func TestRunOfAnEarlierPeriodDoesNotUseThisOneUp(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:00Z")
	one := client(s, func() time.Time { return now })
	two := client(s, func() time.Time { return now })
	var j job
	ran, err := jobs.OncePer(t.Context(), one, "job", time.Hour, func(context.Context) error {
		now = at("2026-08-29T11:30:00Z")
		ran, err := jobs.OncePer(t.Context(), two, "job", time.Hour, j.run)
		if _, isHeld := errors.AsType[*mutex.HeldError](err); ran || !isHeld {
			t.Errorf("while the run of 10:00 holds the lock: %v, %v", ran, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	if ran, err := jobs.OncePer(t.Context(), two, "job", time.Hour, j.run); !ran || err != nil {
		t.Errorf("afterwards: %v, %v", ran, err)
	}
}

func TestClockThatWentBackRunsNothingAgain(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:00Z")
	c := client(s, func() time.Time { return now })
	var j job
	if ran, err := jobs.OncePer(t.Context(), c, "job", 10*time.Minute, j.run); !ran || err != nil {
		t.Fatalf("%v, %v", ran, err)
	}
	now = at("2026-08-29T09:00:00Z")
	ran, err := jobs.OncePer(t.Context(), c, "job", 10*time.Minute, j.run)
	behind, _ := errors.AsType[*jobs.PeriodError](err)
	if ran || behind == nil || !behind.Taken.Start.Equal(at("2026-08-29T10:00:00Z")) || !behind.Start.Equal(now) {
		t.Errorf("%v, %v", ran, err)
	}
	want := `once "job": the period of 2026-08-29T10:00:00Z is 60 minutes ahead of this machine's clock, and ` +
		`it was taken 2026-08-29T10:00:00Z by billing on host-1, every 10m0s; ` +
		`no earlier one runs any more, unless its key /mutexes/.periods/job is deleted`
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := jobs.ResetPeriod(t.Context(), c, "job"); err != nil {
		t.Fatal(err)
	}
	if p, err := jobs.LastPeriod(t.Context(), c, "job"); err != nil || !p.Start.IsZero() {
		t.Errorf("after the reset the period is %+v, %v", p, err)
	}
	if ran, err := jobs.OncePer(t.Context(), c, "job", 10*time.Minute, j.run); !ran || err != nil {
		t.Errorf("after the reset: %v, %v", ran, err)
	}
}

func TestClockThatIsAheadOfAllUnlockersUsesNothingUp(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:30Z")
	c := client(s, func() time.Time { return now })
	announce := func(id string, clock string, life int64) {
		lease, err := s.Etcd().Grant(t.Context(), 60)
		if err != nil {
			t.Fatal(err)
		}
		value := protocol.Marshal(metadata.Presence{ID: id, Now: metadata.Time{Time: at(clock)}})
		if life == 0 {
			etcdtest.Put(t, s.Etcd(), layout(t).Unlocker(id), value)
		} else if _, err := s.Etcd().Put(t.Context(), layout(t).Unlocker(id), value,
			clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	var j job
	announce("left-over", "2026-08-29T12:00:00Z", 0)
	announce("behind", "2026-08-29T08:00:00Z", 60)
	announce("right", "2026-08-29T09:00:00Z", 60)
	ran, err := jobs.OncePer(t.Context(), c, "job", time.Minute, j.run)
	ahead, _ := errors.AsType[*jobs.ClockError](err)
	if ran || ahead == nil || ahead.Unlocker.ID != "right" {
		t.Fatalf("%v, %v", ran, err)
	}
	want := `once "job": by the clock of unlocker right it is 2026-08-29T09:00:00Z, ` +
		`and the period of 2026-08-29T10:00:00Z has not begun; this machine's clock says 2026-08-29T10:00:30Z`
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if p, _ := jobs.LastPeriod(t.Context(), c, "job"); !p.Start.IsZero() {
		t.Errorf("the period %v is used up", p)
	}
	if ran, err := jobs.OncePer(t.Context(), c, "daily", 24*time.Hour, j.run); !ran || err != nil {
		t.Errorf("a period that has begun by all clocks: %v, %v", ran, err)
	}
	now = at("2026-08-29T09:00:45Z")
	if ran, err := jobs.OncePer(t.Context(), c, "job", time.Minute, j.run); !ran || err != nil {
		t.Errorf("with the right time: %v, %v", ran, err)
	}
}

func TestRunThatFailedUsesThePeriodUpUnlessItGivesItBack(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:00Z")
	c := client(s, func() time.Time { return now })
	broken := errors.New("broken")
	for _, opts := range [][]jobs.Option{nil, {jobs.PeriodBackOnError()}} {
		name := fmt.Sprint("job ", len(opts))
		good := &job{}
		bad := &job{err: broken}
		for range 2 {
			if ran, err := jobs.OncePer(t.Context(), c, name, time.Hour, bad.run, opts...); ran && err != broken ||
				!ran &&
					err != nil {
				t.Errorf("%v, %v", ran, err)
			}
		}
		func() {
			defer func() {
				if r := recover(); len(opts) > 0 && r != "oh" {
					t.Errorf("the panic became %v", r)
				}
			}()
			jobs.OncePer(t.Context(), c, name, time.Hour, func(context.Context) error { panic("oh") }, opts...)
		}()
		ran, err := jobs.OncePer(t.Context(), c, name, time.Hour, good.run, opts...)
		if err != nil || ran != (len(opts) > 0) || bad.runs != 1+len(opts) {
			t.Errorf("%s: %d runs failed, then: %v, %v", name, bad.runs, ran, err)
		}
		now = now.Add(time.Hour)
		jobs.OncePer(t.Context(), c, name, time.Hour, bad.run, opts...)
		if p, err := jobs.LastPeriod(t.Context(), c, name); len(opts) > 0 && !p.Start.Equal(now.Add(-time.Hour)) {
			t.Errorf("after a failure the last period is %v, %v", p, err)
		}
		now = now.Add(-time.Hour)
	}
	// the periods, and the marks of four that were given back
	if n := etcdtest.Count(t, s.Etcd(), mutex.DefaultPrefix); n != 2+4 {
		t.Errorf("%d keys are left", n)
	}
}

func TestPeriodThatSomebodyResetIsNotGivenBack(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:00Z")
	c := client(s, func() time.Time { return now })
	broken := errors.New("broken")
	ran, err := jobs.OncePer(t.Context(), c, "job", time.Hour, func(ctx context.Context) error {
		if err := jobs.ResetPeriod(ctx, c, "job"); err != nil {
			t.Error(err)
		}
		return broken
	}, jobs.PeriodBackOnError())
	s.AssertFree("job")
	if !ran || err != broken {
		t.Errorf("%v, %v", ran, err)
	}
}

func TestKilledRunIsNotRunAgain(t *testing.T) {
	s := locktest.NewInMemory(t)
	now := at("2026-08-29T10:00:00Z")
	one := client(s, func() time.Time { return now })
	two := client(s, func() time.Time { return now })
	var j job
	ran, err := jobs.OncePer(t.Context(), one, "job", time.Hour, func(ctx context.Context) error {
		s.Etcd().Delete(ctx, "/mutexes/job/", clientv3.WithPrefix()) // as the unlocker does when this process died
		// The other process has a context of its own: this one ends with the loss.
		if ran, err := jobs.OncePer(t.Context(), two, "job", time.Hour, j.run); ran || err != nil {
			t.Errorf("in the same period: %v, %v", ran, err)
		}
		return nil
	}, jobs.PeriodBackOnError())
	if !ran || !errors.Is(err, mutex.ErrNotHeld) || j.runs != 0 {
		t.Errorf("%v, %v", ran, err)
	}
}

func TestPeriodThatCannotBeReadIsTold(t *testing.T) {
	s := locktest.NewInMemory(t)
	c := client(s, time.Now)
	etcdtest.Put(t, s.Etcd(), layout(t).Period("job"), "soon")
	ran, err := jobs.OncePer(t.Context(), c, "job", time.Hour, new(job).run)
	if ran || err == nil || !strings.Contains(err.Error(),
		`once "job": the key /mutexes/.periods/job cannot be read: "soon" is not a time`) {
		t.Errorf("%v, %v", ran, err)
	}
	if _, err := jobs.LastPeriod(t.Context(), c, "job"); err == nil {
		t.Error("Period reads it")
	}
}

// The backtrace in a job's lock should start with the user's own code.
func TestBacktracesBeginWithTheCallerOfThisPackage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		locks := s.Client(mutex.Options{})
		invoices, err := jobs.NewTasks(locks, "invoices", jobs.TaskOptions{})
		if err != nil {
			t.Fatal(err)
		}
		add(t, invoices, "1", "")
		var seen []string
		look := func(context.Context) error {
			seen = append(seen, s.Holder("a").Backtrace)
			return nil
		}
		jobs.OncePer(context.Background(), locks, "a", time.Hour, look)
		jobs.Pipeline(context.Background(), locks, "a", []jobs.Step{{"one", look}})
		task := capture(t, invoices, 1)[0]
		seen = append(seen, s.Holder("invoices/1").Backtrace)
		task.Release()
		for _, trace := range seen {
			if first, _, _ := strings.Cut(trace, "\n"); !strings.Contains(first, "/pkg/jobs_test.") {
				t.Errorf("it begins with %s", first)
			}
		}
		if len(seen) != 3 {
			t.Errorf("%d locks were looked at", len(seen))
		}
	})
}

func TestLockAroundAJobIsFoundInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.NewInMemory(t).Client(mutex.Options{})
		err := locks.Do(context.Background(), "a", func(ctx context.Context) error {
			_, err := jobs.OncePer(ctx, locks, "b", time.Hour, func(ctx context.Context) error {
				inner, err := locks.TryLock(ctx, "a", mutex.Reentrant())
				if err != nil {
					return err
				}
				return inner.Unlock()
			})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
