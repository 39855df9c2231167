package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// etcd stands for the client of your etcd. In these examples it is one in memory.
func etcd() *clientv3.Client { return etcdmemory.New().Connect().Client() }

func ExampleOncePer() {
	locks, err := mutex.New(etcd(), mutex.Options{Owner: "report"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	report := func(ctx context.Context) error {
		fmt.Println("the report is sent")
		return nil
	}
	for range 3 { // each minute, on every replica
		ran, err := jobs.OncePer(context.Background(), locks, "daily-report", 24*time.Hour, report,
			jobs.PeriodOffset(6*time.Hour), // the day begins at six o'clock UTC
			jobs.LockOptions(mutex.AlertAfter(10*time.Minute)))
		fmt.Println(ran, err)
	}
	// Output:
	// the report is sent
	// true <nil>
	// false <nil>
	// false <nil>
}
