package unlocker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// lookEvery is how often it is looked for processes that wait for each other. One that is there at two looks in a
	// row is told: busy workers that do several things at once seem to wait for each other for a moment all day.
	lookEvery = 5 * time.Second
	// maxTold bounds the lines of one look, and maxSteps the waits in one line.
	maxTold, maxSteps = 20, 10
)

// watchman tells in the log when processes began to wait for each other, and when they do not any more. Nothing is done
// about it.
type watchman struct {
	cycles func() []deadlock.Cycle
	log    zerolog.Logger

	seen, told map[string]deadlock.Cycle // at the last look; in the log, and not over
}

func newWatchman(cycles func() []deadlock.Cycle, log zerolog.Logger) *watchman {
	return &watchman{cycles: cycles, log: log, told: map[string]deadlock.Cycle{}}
}

// Run looks until ctx ends.
func (w *watchman) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.look()
		}
	}
}

func (w *watchman) look() {
	now := map[string]deadlock.Cycle{}
	for _, c := range w.cycles() {
		locks, holders := c.Labels()
		key := locks + "\n" + holders
		now[key] = c
		_, before := w.seen[key]
		if _, told := w.told[key]; before && !told && len(w.told) < maxTold {
			w.told[key] = c
			tell(w.log.Warn(), c).Str("waits", waits(c)).Msg("processes wait for each other's locks, maybe for ever")
		}
	}
	for key, c := range w.told {
		if _, still := now[key]; !still {
			delete(w.told, key)
			tell(w.log.Info(), c).Msg("these processes do not wait for each other any more")
		}
	}
	w.seen = now
}

func tell(e *zerolog.Event, c deadlock.Cycle) *zerolog.Event {
	locks, holders := c.Labels()
	e = e.Str("locks", locks).Str("holders", holders)
	if !c.Since.IsZero() {
		e = e.Time("since", c.Since.UTC())
	}
	return e
}

// waits says who waits for what: "billing on host-1:7 waits for orders, held by search on host-2:8; …".
func waits(c deadlock.Cycle) string {
	var steps []string
	for _, w := range c.Waits[:min(len(c.Waits), maxSteps)] {
		held := w.Held[0].String()
		if others := len(w.Held) - 1; others > 0 {
			held += fmt.Sprintf(" and %d more", others)
		}
		steps = append(steps, fmt.Sprintf("%s waits for %s, held by %s", metadata.Label(w.Who.String()),
			metadata.Label(w.Lock), metadata.Label(held)))
	}
	if more := len(c.Waits) - len(steps); more > 0 {
		steps = append(steps, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(steps, "; ")
}
