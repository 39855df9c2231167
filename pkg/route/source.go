package route

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdretry"
)

// Source is where a table comes from: [File].
type Source struct {
	read  func(context.Context) ([]byte, error)
	every time.Duration
}

// reread is how often a file is read again.
const reread = time.Second

// File is the table in a file. It is read again every second, and whenever a lock turns out to have moved.
func File(path string) Source {
	return Source{every: reread, read: func(context.Context) ([]byte, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the table of routes cannot be read: %w", err)
		}
		return text, nil
	}}
}

// follow reads the table now and then until ctx ends.
func (s Source) follow(ctx context.Context, reread func(context.Context) error) {
	for etcdretry.Pause(ctx, s.every) {
		_ = reread(ctx) // the client keeps the error
	}
}
