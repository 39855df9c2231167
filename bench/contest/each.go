package contest

import "sync"

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
