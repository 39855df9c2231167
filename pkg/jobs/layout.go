package jobs

import (
	"errors"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// layoutOf is where the keys of the locks, and of the documents of jobs, are.
func layoutOf(locks *mutex.Client) (metadata.Layout, error) {
	if locks == nil {
		return metadata.Layout{}, errors.New("no lock client was given")
	}
	return metadata.NewLayout(locks.Prefix())
}
