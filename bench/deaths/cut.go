package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

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
	between, err := newCutter(c.client.Addr)
	if err != nil {
		return err
	}
	defer between.close()
	through := c.client
	through.Addr = between.addr()
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
	if err := wait(ctx, life/2); err != nil { // past its first extension
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	obtained := make(chan obtaining, 1)
	go func() { obtained <- obtain(waiting, locks, name) }()
	began := time.Now()
	between.cut()
	return c.observe(ctx, p, between, obtained, began, length)
}

// observe notes in c.cut what follows a cut that began at began and is to last for length.
func (c *contender) observe(ctx context.Context, p *proctest.Process, between *cutter, obtained <-chan obtaining,
	began time.Time, length time.Duration) error {
	healed := time.After(length)
	end := time.After(length + 2*life)
	for r := &c.cut; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-healed:
			between.heal()
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

// cutter is a TCP proxy that can stop to pass anything on, in both directions, while all connections stay open: as when
// a switch drops packets. What arrives meanwhile is passed on afterwards.
type cutter struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	whole chan struct{} // closed while it passes everything on
}

func newCutter(target string) (*cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cutter{listener: l, target: target, whole: make(chan struct{})}
	close(c.whole)
	go c.serve()
	return c, nil
}

func (c *cutter) addr() string { return c.listener.Addr().String() }
func (c *cutter) close()       { c.listener.Close() }

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = make(chan struct{})
}

func (c *cutter) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.whole)
}

// pass waits until the cutter passes everything on.
func (c *cutter) pass() {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	<-whole
}

func (c *cutter) serve() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			c.pass()
			far, err := net.Dial("tcp", c.target)
			if err != nil {
				near.Close()
				return
			}
			go c.copy(near, far)
			c.copy(far, near)
		}()
	}
}

// copy passes on what one side sends, and then that it ended.
func (c *cutter) copy(to, from net.Conn) {
	defer to.Close()
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		c.pass()
		if _, failed := to.Write(data[:n]); failed != nil {
			from.Close()
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				from.Close()
			}
			return
		}
	}
}
