package cli

import (
	"context"
	"errors"
	"time"
)

// waitTimeout is the value of --wait: a duration, 0 for a single try, or forever.
type waitTimeout struct {
	limit   time.Duration
	forever bool
	given   bool // on the command line, not by default
}

func (p *waitTimeout) String() string {
	if p.forever {
		return "forever"
	}
	return p.limit.String()
}

func (p *waitTimeout) Type() string { return "duration" }

func (p *waitTimeout) Set(s string) error {
	if s == "forever" {
		*p = waitTimeout{forever: true, given: true}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a duration such as 30s or 5m, 0 to try once, or forever")
	}
	*p = waitTimeout{limit: d, given: true}
	return nil
}

// none reports whether to try only once.
func (p *waitTimeout) none() bool { return !p.forever && p.limit == 0 }

// outlastsOutage reports whether to wait for an unreachable etcd, too. Without --wait it is false, so that a wrong
// endpoint does not block a script forever.
func (p *waitTimeout) outlastsOutage() bool { return p.given && !p.none() }

// bound returns a context that ends with the wait.
func (p *waitTimeout) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.forever {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.limit)
}
