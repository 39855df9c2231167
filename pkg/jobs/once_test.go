package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// job counts its runs.
type job struct {
	runs int
	err  error
}

func (j *job) run(context.Context) error {
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

// machines are an etcd and two clients with one clock.
func machines(t testing.TB, clock string) (s *locktest.Server, now *time.Time, one, two *mutex.Client) {
	s = locktest.NewInMemory(t)
	now = new(at(clock))
	read := func() time.Time { return *now }
	return s, now, client(s, read), client(s, read)
}

// once asks for a run of "job" in this period, and wants to be told without an error whether it ran.
func once(t testing.TB, c *mutex.Client, every time.Duration, run func(context.Context) error, want bool,
	opts ...jobs.Option) {
	t.Helper()
	if ran, err := jobs.OncePer(t.Context(), c, "job", every, run, opts...); ran != want || err != nil {
		t.Errorf("it ran: %v, %v", ran, err)
	}
}

// last is the period of "job" that was taken.
func last(t testing.TB, c *mutex.Client) jobs.Period {
	t.Helper()
	p, err := jobs.LastPeriod(t.Context(), c, "job")
	proctest.Must(t, err)
	return p
}

func TestJobRunsOncePerPeriod(t *testing.T) {
	s, now, one, two := machines(t, "2026-08-29T10:17:00Z")
	var j job
	once(t, one, time.Hour, func(ctx context.Context) error {
		if r := s.AssertHeld("job"); r.Purpose != "hourly" || r.Attributes["period"] != "2026-08-29T10:00:00Z" {
			t.Errorf("while it runs the record is %+v", r.Record)
		}
		return j.run(ctx)
	}, true, jobs.LockOptions(mutex.Purpose("hourly")))
	for _, clock := range []string{"2026-08-29T10:17:00Z", "2026-08-29T10:59:59.999Z", "2026-08-29T10:00:00Z"} {
		*now = at(clock)
		once(t, one, time.Hour, j.run, false)
		once(t, two, time.Hour, j.run, false)
	}
	if p := last(t, two); !p.Start.Equal(at("2026-08-29T10:00:00Z")) ||
		p.Note != "taken 2026-08-29T10:17:00Z by billing on host-1, every 1h0m0s" {
		t.Errorf("the period is %+v", p)
	}
	*now = at("2026-08-29T11:00:00Z")
	once(t, two, time.Hour, j.run, true)
	s.AssertFree("job")
	if j.runs != 2 {
		t.Errorf("%d runs", j.runs)
	}
}

func TestPeriodStarts(t *testing.T) {
	for _, c := range []struct {
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
		_, _, one, _ := machines(t, c.now)
		once(t, one, c.every, new(job).run, true, jobs.PeriodOffset(c.offset))
		if p := last(t, one); !p.Start.Equal(at(c.want)) {
			t.Errorf("%v at %s: the period began at %v, want %s", c.every, c.now, p.Start, c.want)
		}
	}
}

func TestJobRunsOnceForATick(t *testing.T) {
	s, now, one, two := machines(t, "2026-08-29T03:00:00Z")
	onceAt := func(c *mutex.Client, tick string, j *job, want bool, opts ...jobs.Option) {
		t.Helper()
		if ran, err := jobs.OnceAt(t.Context(), c, "job", at(tick), j.run, opts...); ran != want || err != j.err {
			t.Errorf("for %s it ran: %v, %v", tick, ran, err)
		}
	}
	broken := &job{err: errors.New("broken")}
	onceAt(one, "2026-08-29T03:00:00Z", broken, true, jobs.RetryOnError())
	onceAt(two, "2026-08-29T05:00:00+02:00", new(job), true)
	*now = at("2026-08-29T02:59:59Z")
	onceAt(one, "2026-08-29T03:00:00.0009Z", new(job), false)
	onceAt(one, "2026-08-29T02:00:00Z", new(job), false)
	if p := last(t, one); p.Note != "taken 2026-08-29T03:00:00Z by billing on host-1" {
		t.Errorf("the tick is %+v", p)
	}
	next := at("2026-08-29T03:00:01Z")
	l, err := jobs.TryLockAt(t.Context(), two, "job", next)
	proctest.Must(t, err)
	if r := s.AssertHeld("job"); r.Attributes["tick"] != "2026-08-29T03:00:01Z" {
		t.Errorf("while it runs the record is %+v", r.Record)
	}
	proctest.Must(t, l.GiveBack())
	if l, err = jobs.TryLockAt(t.Context(), one, "job", next); err == nil {
		err = l.Unlock()
	}
	proctest.Must(t, err)
	if _, err := jobs.TryLockAt(t.Context(), two, "job", next); !errors.Is(err, jobs.ErrTickTaken) {
		t.Errorf("the tick is taken: %v", err)
	}
	ran, err := jobs.OnceAt(t.Context(), one, "job", now.Add(time.Minute), new(job).run)
	want := `once "job": the tick of 2026-08-29T03:00:59Z has not come: this machine's clock says 2026-08-29T02:59:59Z`
	if ran || err == nil || err.Error() != want {
		t.Errorf("got %v, %v", ran, err)
	}
	s.AssertFree("job")
}

func TestEarlierRunDoesNotUseUpThisPeriod(t *testing.T) {
	_, now, one, two := machines(t, "2026-08-29T10:00:00Z")
	var j job
	once(t, one, time.Hour, func(context.Context) error {
		*now = at("2026-08-29T11:30:00Z")
		ran, err := jobs.OncePer(t.Context(), two, "job", time.Hour, j.run)
		if _, isHeld := errors.AsType[*mutex.HeldError](err); ran || !isHeld {
			t.Errorf("while the run of 10:00 holds the lock: %v, %v", ran, err)
		}
		return nil
	}, true)
	once(t, two, time.Hour, j.run, true)
}

func TestClockSetBackRunsNoPeriodAgain(t *testing.T) {
	_, now, c, _ := machines(t, "2026-08-29T10:00:00Z")
	var j job
	once(t, c, 10*time.Minute, j.run, true)
	*now = at("2026-08-29T09:00:00Z")
	ran, err := jobs.OncePer(t.Context(), c, "job", 10*time.Minute, j.run)
	behind, _ := errors.AsType[*jobs.PeriodError](err)
	if ran || behind == nil || !behind.Last.Start.Equal(at("2026-08-29T10:00:00Z")) || !behind.Start.Equal(*now) {
		t.Errorf("%v, %v", ran, err)
	}
	want := `once "job": the run of 2026-08-29T10:00:00Z is 60 minutes ahead of this machine's clock, and ` +
		`it was taken 2026-08-29T10:00:00Z by billing on host-1, every 10m0s; ` +
		`earlier ones run only if its key /mutexes/.periods/job is deleted`
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	proctest.Must(t, jobs.ResetPeriod(t.Context(), c, "job"))
	if p := last(t, c); !p.Start.IsZero() {
		t.Errorf("after the reset the period is %+v", p)
	}
	once(t, c, 10*time.Minute, j.run, true)
}

func TestClockAheadOfAllUnlockersUsesNoPeriodUp(t *testing.T) {
	s, now, c, _ := machines(t, "2026-08-29T10:00:30Z")
	lease, err := s.Etcd().Grant(t.Context(), 60)
	proctest.Must(t, err)
	announce := func(id, clock string, opts ...clientv3.OpOption) {
		value := protocol.Marshal(metadata.Presence{ID: id, Now: metadata.Time{Time: at(clock)}})
		if _, err := s.Etcd().Put(t.Context(), layout(t).Unlocker(id), value, opts...); err != nil {
			t.Fatal(err)
		}
	}
	var j job
	announce("left-over", "2026-08-29T12:00:00Z")
	announce("behind", "2026-08-29T08:00:00Z", clientv3.WithLease(lease.ID))
	announce("right", "2026-08-29T09:00:00Z", clientv3.WithLease(lease.ID))
	ran, err := jobs.OncePer(t.Context(), c, "job", time.Minute, j.run)
	ahead, _ := errors.AsType[*jobs.ClockError](err)
	if ran || ahead == nil || ahead.Unlocker.ID != "right" {
		t.Fatalf("%v, %v", ran, err)
	}
	want := `once "job": by the clock of unlocker right it is 2026-08-29T09:00:00Z, ` +
		`so the run of 2026-08-29T10:00:00Z is not due; this machine's clock says 2026-08-29T10:00:30Z`
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if p := last(t, c); !p.Start.IsZero() {
		t.Errorf("the period %v is used up", p)
	}
	*now = at("2026-08-29T09:00:45Z")
	once(t, c, time.Minute, j.run, true)
	*now = at("2026-08-29T10:00:30Z")
	if ran, err := jobs.OncePer(t.Context(), c, "daily", 24*time.Hour, j.run); !ran || err != nil {
		t.Errorf("a period that has begun by all clocks: %v, %v", ran, err)
	}
}

func TestFailedRunUsesUpItsPeriodUnlessGivenBack(t *testing.T) {
	for _, opts := range [][]jobs.Option{nil, {jobs.RetryOnError()}} {
		s, now, c, _ := machines(t, "2026-08-29T10:00:00Z")
		good := &job{}
		bad := &job{err: errors.New("broken")}
		givesBack := len(opts) > 0
		for range 2 {
			ran, err := jobs.OncePer(t.Context(), c, "job", time.Hour, bad.run, opts...)
			if ran != (err == bad.err) {
				t.Errorf("it ran: %v, %v", ran, err)
			}
		}
		func() {
			defer func() {
				if r := recover(); givesBack && r != "oh" {
					t.Errorf("the panic became %v", r)
				}
			}()
			jobs.OncePer(t.Context(), c, "job", time.Hour, func(context.Context) error { panic("oh") }, opts...)
		}()
		once(t, c, time.Hour, good.run, givesBack, opts...)
		if bad.runs != 1+len(opts) {
			t.Errorf("%d runs failed", bad.runs)
		}
		taken := *now
		*now = now.Add(time.Hour)
		jobs.OncePer(t.Context(), c, "job", time.Hour, bad.run, opts...)
		if p := last(t, c); givesBack && !p.Start.Equal(taken) {
			t.Errorf("after a failure the last period is %v", p)
		}
		if n := etcdtest.Count(t, s.Etcd(), mutex.DefaultPrefix); n != 1 {
			t.Errorf("%d keys are left, want the period", n)
		}
	}
}

func TestResetPeriodIsNotGivenBack(t *testing.T) {
	s, now, c, _ := machines(t, "2026-08-29T10:00:00Z")
	once(t, c, time.Hour, new(job).run, true)
	*now = now.Add(time.Hour)
	broken := errors.New("broken")
	ran, err := jobs.OncePer(t.Context(), c, "job", time.Hour, func(ctx context.Context) error {
		proctest.Must(t, jobs.ResetPeriod(ctx, c, "job"))
		return broken
	}, jobs.RetryOnError())
	s.AssertFree("job")
	if p := last(t, c); !ran || err != broken || !p.Start.IsZero() {
		t.Errorf("%v, %v, and the last period is %v", ran, err, p)
	}
}

func TestKilledRunIsNotRunAgain(t *testing.T) {
	s, _, one, two := machines(t, "2026-08-29T10:00:00Z")
	var j job
	ran, err := jobs.OncePer(t.Context(), one, "job", time.Hour, func(ctx context.Context) error {
		s.Etcd().Delete(ctx, "/mutexes/job/", clientv3.WithPrefix()) // as the unlocker does when this process died
		once(t, two, time.Hour, j.run, false)
		return nil
	}, jobs.RetryOnError())
	if !ran || !errors.Is(err, mutex.ErrNotHeld) || j.runs != 0 {
		t.Errorf("%v, %v", ran, err)
	}
}

func TestUnreadablePeriodIsReported(t *testing.T) {
	s, _, c, _ := machines(t, "2026-08-29T10:00:00Z")
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
func TestBacktracesStartAtTheCaller(t *testing.T) {
	s, tasks := tasks(t, jobs.TaskOptions{})
	locks := s.Client(mutex.Options{})
	var seen []string
	look := func(context.Context) error {
		seen = append(seen, s.Holder("a").Backtrace)
		return nil
	}
	jobs.OncePer(t.Context(), locks, "a", time.Hour, look)
	jobs.Pipeline(t.Context(), locks, "a", []jobs.Step{{"one", look}})
	one(t, tasks, 1, "new")
	for _, trace := range append(seen, s.Holder("invoices/1").Backtrace) {
		if first, _, _ := strings.Cut(trace, "\n"); !strings.Contains(first, "/pkg/jobs_test.") {
			t.Errorf("it begins with %s", first)
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d jobs were looked at", len(seen))
	}
}

func TestLockOfAJobIsInItsContext(t *testing.T) {
	locks := locktest.NewInMemory(t).Client(mutex.Options{})
	err := locks.Do(t.Context(), "a", func(ctx context.Context) error {
		_, err := jobs.OncePer(ctx, locks, "b", time.Hour, func(ctx context.Context) error {
			return locks.Do(ctx, "a", new(job).run, mutex.Reentrant())
		})
		return err
	})
	proctest.Must(t, err)
}
