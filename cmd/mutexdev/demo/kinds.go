package demo

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// transcoders is how many films may be transcoded at once: the permits of a semaphore.
const transcoders = 3

// transcode takes one permit, or two for a long film. Three pods want more than there are, so one always waits.
func (p *pod) transcode(ctx context.Context) error {
	for _, film := range []struct {
		title  string
		weight int
		takes  time.Duration
	}{{"trailer", 1, 15 * time.Second}, {"feature film, 6 renditions", 2, 40 * time.Second}} {
		err := p.locks.Do(ctx, "media/transcoders", func(held context.Context) error {
			p.rest(held, film.takes)
			return nil
		}, mutex.Semaphore(transcoders), mutex.Weight(film.weight), mutex.Purpose(film.title),
			mutex.AlertAfter(p.pace(2*time.Minute)))
		if err != nil {
			return err
		}
		p.rest(ctx, time.Second)
	}
	return nil
}

// searches reads under a read-write lock, together with other readers.
func (p *pod) searches(ctx context.Context) error {
	return p.locks.Do(ctx, "catalog/prices", func(held context.Context) error {
		p.rest(held, 18*time.Second)
		return nil
	}, mutex.Shared(), mutex.Purpose("search with today's prices"), mutex.AlertAfter(p.pace(time.Minute)))
}

// reprices writes under it: it waits until all readers are done, and later readers wait behind it.
func (p *pod) reprices(ctx context.Context) error {
	err := p.locks.Do(ctx, "catalog/prices", func(held context.Context) error {
		p.rest(held, 10*time.Second)
		return nil
	}, mutex.Exclusive(), mutex.Purpose("new prices"), mutex.AlertAfter(p.pace(time.Minute)))
	p.rest(ctx, 25*time.Second)
	return err
}

// statistics run once a minute, on whichever pod is first, however long they take.
func (p *pod) statistics(ctx context.Context) error {
	work := func(held context.Context) error {
		p.rest(held, 8*time.Second)
		return nil
	}
	_, err := jobs.OncePer(ctx, p.locks, "reports/statistics", p.pace(time.Minute), work, jobs.LockOptions(
		mutex.Purpose("statistics of the last minute"), mutex.AlertAfter(p.pace(30*time.Second))))
	p.rest(ctx, 4*time.Second)
	return err
}
