package mutex_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func ExampleLock_Asked() {
	locks, err := mutex.New(etcd(), mutex.Options{Owner: "search"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	reindex := func(ctx context.Context) error {
		lock := mutex.FromContext(ctx)
		for batch := 1; batch <= 10_000; batch++ {
			select {
			case <-lock.Asked(): // between two batches is a good moment to stop
				return lock.AskedError()
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Millisecond): // the work
			}
		}
		return nil
	}

	// Somebody else is in a hurry.
	time.AfterFunc(100*time.Millisecond, func() {
		_ = locks.Do(ctx, "search/reindex", func(context.Context) error { return nil },
			mutex.Urgent("deploy of the fix"), mutex.Owner("deploy"))
	})

	err = locks.Do(ctx, "search/reindex", reindex)
	if asked, isAsked := err.(*mutex.AskedError); isAsked {
		fmt.Printf("%s asked to finish: %s\n", asked.Request.By, asked.Request.Reason)
	}
	// Output:
	// deploy asked to finish: deploy of the fix
}
