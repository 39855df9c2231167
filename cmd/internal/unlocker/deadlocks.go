package unlocker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
)

const (
	// searchEvery is how often deadlocks are searched for. A cycle is logged if two searches in a row find it: busy
	// workers that do several things at once seem to wait for each other for a moment all day.
	searchEvery = 5 * time.Second
	// maxLogged bounds the number of cycles logged at a time, and maxWaits the waits in one line.
	maxLogged = 20
	maxWaits  = 10
)

// deadlockLogger logs when processes begin to wait for each other, and when they no longer do. Nothing else is done
// about it.
type deadlockLogger struct {
	cycles func() []deadlock.Cycle
	log    zerolog.Logger

	found  map[string]deadlock.Cycle // by the last search
	logged map[string]deadlock.Cycle // logged, and not over
}

func newDeadlockLogger(cycles func() []deadlock.Cycle, log zerolog.Logger) *deadlockLogger {
	return &deadlockLogger{cycles: cycles, log: log, logged: map[string]deadlock.Cycle{}}
}

// Run searches until ctx ends.
func (d *deadlockLogger) Run(ctx context.Context) error {
	ticker := time.NewTicker(searchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			d.search()
		}
	}
}

func (d *deadlockLogger) search() {
	now := map[string]deadlock.Cycle{}
	for _, c := range d.cycles() {
		locks, holders := c.Labels()
		key := locks + "\n" + holders
		now[key] = c
		_, before := d.found[key]
		if _, logged := d.logged[key]; before && !logged && len(d.logged) < maxLogged {
			d.logged[key] = c
			describe(d.log.Warn(), c).Str("waits", describeWaits(c)).
				Msg("processes wait for each other's locks, maybe forever")
		}
	}
	for key, c := range d.logged {
		if _, still := now[key]; !still {
			delete(d.logged, key)
			describe(d.log.Info(), c).Msg("these processes no longer wait for each other")
		}
	}
	d.found = now
}

func describe(e *zerolog.Event, c deadlock.Cycle) *zerolog.Event {
	locks, holders := c.Labels()
	e = e.Str("locks", locks).Str("holders", holders)
	if !c.Since.IsZero() {
		e = e.Time("since", c.Since.UTC())
	}
	return e
}

// describeWaits describes the waits: "billing on host-1:7 waits for orders, held by search on host-2:8; …".
func describeWaits(c deadlock.Cycle) string {
	steps, more := c.Describe(maxWaits)
	if more > 0 {
		steps = append(steps, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(steps, "; ")
}
