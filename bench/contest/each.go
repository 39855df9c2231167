package contest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"
)

// Each runs f n times concurrently, with the numbers from 0, and returns the first error.
func Each(n int, f func(worker int) error) error {
	errs := make(chan error, n)
	var all sync.WaitGroup
	for worker := range n {
		all.Go(func() { errs <- f(worker) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for d, and returns an error if ctx ends before.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Keep adds figures to a file, as a line of JSON; it does nothing without a file.
func Keep(file string, figures any) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
