package contest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/clustermutex/unlocker/bench/stats"
)

// bout is a turn in progress.
type bout struct {
	work       Work
	contestant Contestant
	name       string
	clients    []Client
	seats      []seat

	measuring atomic.Bool // otherwise what clients do does not count
	stopping  atomic.Bool
	waiting   atomic.Int64 // clients that have not had the lock yet
	started   chan struct{}

	inside, last, violations atomic.Int64
}

// seat is what one client did.
type seat struct {
	done, passed int
	waits        []time.Duration
	err          error
}

// pastStop is how long clients may take to stop after the turn.
const pastStop = time.Minute

func (b *bout) run(ctx context.Context) (Turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	load := Load()
	b.started = make(chan struct{})
	b.waiting.Store(int64(len(b.clients)))
	var all sync.WaitGroup
	for i := range b.clients {
		all.Go(func() { b.seats[i].err = b.play(ctx, i) })
	}
	b.await(ctx)
	before, err := b.counters(ctx)
	if err != nil {
		return Turn{}, err
	}
	began := time.Now()
	used := ownCPU()
	allocs := allocated()
	b.measuring.Store(true)
	_ = Wait(ctx, b.work.Length)
	b.measuring.Store(false)
	took := time.Since(began)
	used = ownCPU() - used
	allocs = allocated() - allocs
	after, err := b.counters(ctx)
	if err != nil {
		return Turn{}, err
	}
	b.stopping.Store(true)
	cancel()
	if err := ended(&all); err != nil {
		return Turn{}, err
	}
	t, err := b.result()
	t.Seconds = took.Seconds()
	t.Load = load
	t.ClientCPU = used.Seconds()
	t.Allocs = float64(allocs)
	if before != nil {
		d := after.minus(*before)
		t.Server = &d
	}
	return t, err
}

// await returns when every client has had the lock once, or that takes too long.
func (b *bout) await(ctx context.Context) {
	select {
	case <-b.started:
	case <-ctx.Done():
	case <-time.After(b.work.MaxStart):
	}
}

func (b *bout) counters(ctx context.Context) (*Counters, error) {
	if b.contestant.Counters == nil {
		return nil, nil
	}
	c, err := b.contestant.Counters(ctx)
	return &c, err
}

// play takes and releases the lock until the turn is over.
func (b *bout) play(ctx context.Context, id int) error {
	name := b.name
	if !b.work.Contend {
		name = fmt.Sprintf("%s-%d", b.name, id)
	}
	for first := true; !b.stopping.Load(); first = false {
		if err := b.once(ctx, id, name); err != nil {
			if b.stopping.Load() {
				return nil
			}
			b.arrived(first)
			return err
		}
		b.arrived(first)
	}
	return nil
}

func (b *bout) arrived(first bool) {
	if first && b.waiting.Add(-1) == 0 {
		close(b.started)
	}
}

func (b *bout) once(ctx context.Context, id int, name string) error {
	began := time.Now()
	unlock, err := b.clients[id].Lock(ctx, name)
	if err != nil {
		return err
	}
	took := time.Since(began)
	passed := false
	if b.work.Contend {
		if b.inside.Add(1) != 1 {
			b.violations.Add(1)
		}
		runtime.Gosched() // gives intruders a chance
		if b.work.Hold > 0 {
			_ = Wait(ctx, b.work.Hold)
		}
		passed = b.last.Swap(int64(id+1)) != int64(id+1)
		b.inside.Add(-1)
	}
	if err := unlock(); err != nil {
		return err
	}
	if !b.work.Contend {
		took = time.Since(began)
	}
	if b.measuring.Load() {
		s := &b.seats[id]
		s.done++
		s.waits = append(s.waits, took)
		if passed {
			s.passed++
		}
	}
	return nil
}

func (b *bout) result() (Turn, error) {
	t := Turn{Contestant: b.contestant.Name, Violations: int(b.violations.Load())}
	var waits []time.Duration
	var shares []int
	var errs []error
	for i := range b.seats {
		s := &b.seats[i]
		t.Done, t.Passed = t.Done+s.done, t.Passed+s.passed
		if s.done > 0 {
			t.Served++
		}
		waits = append(waits, s.waits...)
		shares = append(shares, s.done)
		errs = append(errs, s.err)
	}
	t.Jain = stats.Jain(shares)
	t.P10 = stats.Milliseconds(stats.Percentile(waits, 10))
	t.P50 = stats.Milliseconds(stats.Percentile(waits, 50))
	t.P99 = stats.Milliseconds(stats.Percentile(waits, 99))
	return t, errors.Join(errs...)
}

func ended(all *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(pastStop):
		return fmt.Errorf("clients did not end within %v", pastStop)
	}
}

// ownCPU returns the processor time that this program has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// allocated returns how many objects this program has allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// Load returns the machine's load average over the last minute, or 0 if it cannot be read.
func Load() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscan(strings.Fields(string(text))[0], &load)
	return load
}
