package unlocker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
)

// trimEvery is how often the history is trimmed to its limit. In between it may be longer.
const trimEvery = time.Minute

// historyTrimmer keeps the history within its limit when many locks are removed.
type historyTrimmer struct {
	trim func(context.Context) (deleted int, err error)
	log  zerolog.Logger
}

// Run trims until ctx ends, at a random offset so that several unlockers do not do it at once.
func (h *historyTrimmer) Run(ctx context.Context) error {
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
			h.log.Warn().Err(explained(err)).Msg("the history could not be trimmed")
		case n > 0:
			h.log.Info().Int("endings", n).Msg("the oldest endings were deleted from the history")
		}
		timer.Reset(trimEvery)
	}
}
