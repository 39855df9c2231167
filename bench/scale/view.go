package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/stats"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
)

// loads is how often the view is loaded, alternating with a bare read.
const loads = 3

// load measures how long the view takes to load, and its memory.
func (c *crowd) load(ctx context.Context, f figures) error {
	store := lockstore.New(c.etcd, c.layout)
	var bare, load, ratios []float64
	for range loads {
		runtime.GC()
		began := time.Now()
		if err := c.stream(ctx); err != nil {
			return err
		}
		bare = append(bare, time.Since(began).Seconds())
		before := heap()
		began = time.Now()
		v, stop := c.run(ctx, store)
		err := until(ctx, func() bool { return v.Fresh().Synced })
		load = append(load, time.Since(began).Seconds())
		if err == nil && len(v.Locks()) != len(c.tokens) {
			err = fmt.Errorf("the view has %d locks", len(v.Locks()))
		}
		f["view bytes"] = float64(heap()-before) / float64(len(c.tokens))
		stop()
		if err != nil {
			return err
		}
		ratios = stats.Ratios(load, bare)
	}
	f["bare"] = stats.Median(bare)
	f["loaded"] = stats.Median(load)
	f["times bare"] = stats.Median(ratios)
	return nil
}

// changes measures how soon the view shows a change, and how many it follows.
func (c *crowd) changes(ctx context.Context, f figures) error {
	store := lockstore.New(c.etcd, c.layout)
	v, stop := c.run(ctx, store)
	defer stop()
	if err := until(ctx, func() bool { return v.Fresh().Synced }); err != nil {
		return err
	}
	if err := c.visible(ctx, v, f); err != nil {
		return err
	}
	return c.flatOut(ctx, v, f)
}

func (c *crowd) run(ctx context.Context, store *lockstore.Store) (*lockview.View, func()) {
	ctx, cancel := context.WithCancel(ctx)
	v := lockview.New(c.layout, lockview.Source{List: store.ListKeys, Watch: store.Watch}, lockview.Options{})
	var done sync.WaitGroup
	done.Go(func() { _ = v.Run(ctx) }) // it ends with ctx
	return v, func() { cancel(); done.Wait() }
}

// stream reads all keys in the cheapest way.
func (c *crowd) stream(ctx context.Context) error {
	chunks, err := c.etcd.GetStream(ctx, c.layout.Prefix(), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for chunk := range chunks {
		if err := chunk.Err(); err != nil {
			return err
		}
	}
	return nil
}

// visible measures the time from etcd's answer to a writer until a reader of the view sees the change, at 1000 changes
// a second.
func (c *crowd) visible(ctx context.Context, v *lockview.View, f figures) error {
	const changes = 4000
	indexes := make(chan int)
	var mu sync.Mutex
	var delays []time.Duration
	go func() {
		defer close(indexes)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := range changes {
			<-tick.C
			indexes <- c.calm(i)
		}
	}()
	err := contest.Each(16, func(int) error {
		for i := range indexes {
			revision, err := c.extend(ctx, i)
			if err != nil {
				return err
			}
			done := time.Now()
			if err := until(ctx, func() bool { return v.Fresh().Revision >= revision }); err != nil {
				return err
			}
			d := time.Since(done)
			mu.Lock()
			delays = append(delays, d)
			mu.Unlock()
		}
		return nil
	})
	f["visible p50"], f["visible p99"] = stats.Milliseconds(stats.Percentile(delays,
		50)), stats.Milliseconds(stats.Percentile(delays, 99))
	return err
}

// flatOut lets 64 clients change locks as fast as they can, and measures how many changes the view follows, and when it
// has the last one.
func (c *crowd) flatOut(ctx context.Context, v *lockview.View, f figures) error {
	const length = 4 * time.Second
	end := time.Now().Add(length)
	var mu sync.Mutex
	changes := 0
	newest := int64(0)
	next := 0
	err := contest.Each(64, func(int) error {
		for time.Now().Before(end) {
			mu.Lock()
			next++
			i := c.calm(next)
			mu.Unlock()
			revision, err := c.extend(ctx, i)
			if err != nil {
				return err
			}
			mu.Lock()
			changes, newest = changes+1, max(newest, revision)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	ended := time.Now()
	if err := until(ctx, func() bool { return v.Fresh().Revision >= newest }); err != nil {
		return err
	}
	f["followed"] = float64(changes) / time.Since(end.Add(-length)).Seconds()
	f["behind"] = stats.Milliseconds(time.Since(ended))
	return nil
}

// timeout is how long to wait for what should come soon.
const timeout = 5 * time.Minute

// until polls until is returns true.
func until(ctx context.Context, is func() bool) error {
	for end := time.Now().Add(timeout); !is(); time.Sleep(100 * time.Microsecond) {
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("it did not come within %v (%w)", timeout, ctx.Err())
		}
	}
	return nil
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
