package cli

import (
	"context"
	"errors"
	"time"
)

// patience is the value of --wait: a duration, 0 for a single try, or forever.
type patience struct {
	limit   time.Duration
	forever bool
	given   bool // on the command line; else it is a default
}

func (p *patience) String() string {
	if p.forever {
		return "forever"
	}
	return p.limit.String()
}

func (p *patience) Type() string { return "duration" }

func (p *patience) Set(s string) error {
	if s == "forever" {
		*p = patience{forever: true, given: true}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a time such as 30s or 5m, 0 to try once, or forever")
	}
	*p = patience{limit: d, given: true}
	return nil
}

// none tells that there is to be no wait.
func (p *patience) none() bool { return !p.forever && p.limit == 0 }

// outlasts reports whether an etcd that is away is waited for, too: only where somebody asked to wait, so that a wrong
// endpoint does not keep a script for ever.
func (p *patience) outlasts() bool { return p.given && !p.none() }

// bound is a context that ends with the patience.
func (p *patience) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.forever {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.limit)
}
