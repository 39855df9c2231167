package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// Group runs the parts of a program concurrently and stops them in order.
type Group struct {
	Log   zerolog.Logger
	Ready *Readiness // turned off first at shutdown; may be nil
	// Delay is how long all parts keep working after that. It is skipped if a part failed.
	Delay time.Duration
	// Timeout is how long all parts together may take to stop. 0 is no limit.
	Timeout time.Duration

	parts []*part
}

type part struct {
	name string
	run  func(context.Context) error
	stop context.CancelFunc
	done chan struct{}
	err  error // once done
}

// Add adds a part. It has to run until its context ends, and then return nil; any other end is a failure. Parts stop
// one after the other, the last added first.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.parts = append(g.parts, &part{name: name, run: run, done: make(chan struct{})})
}

// Run runs all parts until ctx or one of them ends. It returns when all have stopped, with the first failure and the
// part that did not stop in time. It is called once.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *part, len(g.parts))
	for _, p := range g.parts {
		p.start(context.WithoutCancel(ctx), ended)
	}
	failure := g.wait(ctx, ended)
	return errors.Join(failure, g.stop())
}

func (p *part) start(ctx context.Context, ended chan<- *part) {
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		p.err = p.run(ctx)
		close(p.done)
		ended <- p
	}()
}

// wait returns when the parts have to stop.
func (g *Group) wait(ctx context.Context, ended <-chan *part) error {
	select {
	case p := <-ended:
		g.Ready.Drain()
		return p.failure()
	case <-ctx.Done():
	}
	g.Ready.Drain()
	g.Log.Info().AnErr("cause", context.Cause(ctx)).Stringer("delay", g.Delay).
		Msg("stopping: no longer ready, still working for the delay")
	select {
	case p := <-ended:
		return p.failure()
	case <-time.After(g.Delay):
		return nil
	}
}

func (p *part) failure() error {
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.name)
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}

func (g *Group) stop() error {
	var late <-chan time.Time
	if g.Timeout > 0 {
		late = time.After(g.Timeout)
	}
	for i := len(g.parts) - 1; i >= 0; i-- {
		p := g.parts[i]
		p.stop()
		select {
		case <-p.done:
			g.Log.Debug().Str("part", p.name).Msg("stopped")
		case <-late:
			for _, rest := range g.parts[:i] {
				rest.stop()
			}
			return fmt.Errorf("%s did not stop within %v", p.name, g.Timeout)
		}
	}
	return nil
}
