package jobs

import (
	"errors"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

var errNoLocks = errors.New("no lock client was given")

// layoutOf returns the layout of the keys of locks and jobs.
func layoutOf(locks *mutex.Client) (protocol.Layout, error) {
	if locks == nil {
		return protocol.Layout{}, errNoLocks
	}
	return protocol.NewLayout(locks.Options().Prefix)
}
