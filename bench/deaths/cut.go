package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// cutResult is what happened while a living holder was cut off.
type cutResult struct {
	taken   time.Duration // when a second client had the lock, since the cut; 0 if it never had
	noticed time.Duration // when the holder learned of it, since the cut; 0 if it never did
	kept    bool          // whether the holder still had its lock some seconds after the cut was over
}

// cutting cuts a holder off for some time while somebody else wants its lock. The holder lives and works all the time.
func (c *contender) cutting(ctx context.Context, length time.Duration) error {
	between, err := etcdtest.LaunchProxy("tcp://" + c.client.Addr)
	if err != nil {
		return err
	}
	defer between.Close()
	through := c.client
	through.Addr = between.Addr()
	const name = "cut-off"
	p, err := c.start(ctx, through, name)
	if err != nil {
		return err
	}
	defer p.Kill()
	locks, err := c.client.connect()
	if err != nil {
		return err
	}
	if err := contest.Wait(ctx, life/2); err != nil { // past its first extension
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	obtained := make(chan obtaining, 1)
	go func() { obtained <- obtain(waiting, locks, name) }()
	began := time.Now()
	between.Stall()
	return c.observe(ctx, p, between, obtained, began, length)
}

// observe notes in c.cut what follows a cut that began at began and is to last for length.
func (c *contender) observe(ctx context.Context, p *proctest.Process, between *etcdtest.Proxy,
	obtained <-chan obtaining, began time.Time, length time.Duration) error {
	healed := time.After(length)
	end := time.After(length + 2*life)
	for r := &c.cut; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-healed:
			between.Heal()
		case o := <-obtained:
			if o.err != nil {
				return o.err
			}
			r.taken = o.at.Sub(began)
			fmt.Fprintf(os.Stderr, "%s: lost by a living holder after %v\n", c.name, r.taken)
		case <-time.After(10 * time.Millisecond):
			if r.noticed == 0 && says(p, saysLost) {
				r.noticed = time.Since(began)
			}
		case <-end:
			if !p.Running() {
				return errors.New("the holder that was cut off ended: " + p.Output())
			}
			r.kept = r.taken == 0 && r.noticed == 0
			return nil
		}
	}
}
