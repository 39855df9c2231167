package mutex_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// compact stands for code of others that takes a sync.Locker.
func compact(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
	fmt.Println("compacted")
}

func ExampleClient_Locker() {
	locks, err := mutex.New(etcd(), mutex.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	stop := func(err error) { log.Fatal(err) } // or close what the code writes to
	l, err := locks.Locker(context.Background(), "compaction", stop, mutex.AutoUnlockAfter(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	compact(l)
	// Output: compacted
}
