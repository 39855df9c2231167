package unlocker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
)

// trimEvery is how often the history is cut to its limit. In between it may be longer.
const trimEvery = time.Minute

// historian keeps the history from growing over its limit when many locks are removed.
type historian struct {
	trim func(context.Context) (deleted int, err error)
	log  zerolog.Logger
}

// Run trims until ctx ends. Several unlockers do so at different times of the minute, by chance.
func (h *historian) Run(ctx context.Context) error {
	timer := time.NewTimer(rand.N(trimEvery))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		n, err := h.trim(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			h.log.Warn().Err(explained(err)).Msg("the history is longer than wanted")
		case n > 0:
			h.log.Info().Int("endings", n).Msg("the oldest endings are deleted from the history")
		}
		timer.Reset(trimEvery)
	}
}
