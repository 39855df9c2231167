package jobs_test

import (
	"context"
	"errors"
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

func ExamplePipeline() {
	locks, err := mutex.New(etcd(), mutex.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	step := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	report, err := jobs.Pipeline(context.Background(), locks, "release/1.4", []jobs.Step{
		{Name: "build", Run: step(nil)},
		{Name: "test", Run: step(errors.New("2 tests failed"))},
		{Name: "publish", Run: step(nil)},
	}, mutex.AlertAfter(20*time.Minute)) // of the longest step
	fmt.Println(report.StopReason, "because", err)
	for _, s := range report.Steps {
		fmt.Println(s.Name, s.State)
	}
	// Output:
	// failed because 2 tests failed
	// build done
	// test failed
	// publish not run
}

func ExampleTasks() {
	locks, err := mutex.New(etcd(), mutex.Options{Owner: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	invoices, err := jobs.NewTasks(locks, "invoices", jobs.TaskOptions{
		MaxAttempts: 2,
		LockOptions: []mutex.Option{mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(5 * time.Minute)},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for _, customer := range []string{"Acme", "Initech"} {
		if _, err := invoices.Add(ctx, "2026-08/"+customer, customer); err != nil {
			log.Fatal(err)
		}
	}

	send := func(customer string) error {
		if customer == "Acme" {
			return errors.New("the address is wrong")
		}
		return nil
	}
	for {
		taken, err := invoices.Take(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		if len(taken) == 0 {
			break // of a real worker: wait a little
		}
		for _, task := range taken {
			state := jobs.StateDone
			note := ""
			if err := send(task.Data()); err != nil {
				state = jobs.StateFailed
				note = err.Error()
			}
			if err := task.Finish(state, note); err != nil {
				log.Print(err) // lost: another worker has it, or will
			}
		}
	}
	all, err := invoices.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, task := range all {
		fmt.Println(task.Name, task.State, task.Note, task.Attempts, task.Exhausted)
	}
	// Output:
	// 2026-08/Acme failed the address is wrong 2 true
	// 2026-08/Initech done  0 false
}
