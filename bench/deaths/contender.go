package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// contender is a kind of lock in one setting, and what was measured of it.
type contender struct {
	name   string
	client client
	rounds int    // how many holders are killed
	lanes  int    // how many of these at a time, each with a lock of its own
	cutOff bool   // also cut a living holder off
	pods   *nodes // makes a pod of each holder, and reports its end; nil where holders have none

	mu    sync.Mutex
	waits []time.Duration // from each kill until the waiter had the lock
	cut   cutResult
}

// timeout bounds a round: longer than any deadline here.
const timeout = 5 * time.Minute

// deaths kills holders.
func (c *contender) deaths(ctx context.Context) error {
	return contest.Each(c.lanes, func(lane int) error {
		for round := lane; round < c.rounds; round += c.lanes {
			if err := c.death(ctx, round); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
}

// death kills one holder with SIGKILL while somebody waits for its lock. It is killed at any moment between two
// extensions, spread evenly over the rounds.
func (c *contender) death(ctx context.Context, round int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := fmt.Sprintf("dead-%d", round)
	p, err := c.start(ctx, c.client, name)
	if err != nil {
		return err
	}
	defer p.Kill()
	locks, err := c.client.connect()
	if err != nil {
		return err
	}
	obtained := make(chan obtaining, 1)
	go func() { obtained <- obtain(ctx, locks, name) }()
	if err := contest.Wait(ctx, life/3+time.Duration(round)*life/3/time.Duration(c.rounds)); err != nil {
		return err
	}
	select {
	case o := <-obtained:
		return fmt.Errorf("%s: the waiter did not wait for its living holder: %w", name, o.err)
	default:
	}
	killed := time.Now()
	p.Kill()
	o := <-obtained
	if o.err != nil {
		return o.err
	}
	took := o.at.Sub(killed)
	fmt.Fprintf(os.Stderr, "%s: %v\n", c.name, took)
	c.mu.Lock()
	c.waits = append(c.waits, took)
	c.mu.Unlock()
	return o.lock.unlock()
}

// start starts a holder that is a client of a server, in a pod if it is to have one.
func (c *contender) start(ctx context.Context, to client, lock string) (*proctest.Process, error) {
	if c.pods == nil {
		return startHolder(ctx, to, lock)
	}
	return c.pods.startHolder(ctx, to, lock)
}

// obtaining is the end of a wait for a lock.
type obtaining struct {
	lock held
	at   time.Time
	err  error
}

func obtain(ctx context.Context, locks locker, name string) obtaining {
	l, err := locks.lock(ctx, name)
	return obtaining{lock: l, at: time.Now(), err: err}
}
