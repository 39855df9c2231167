package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func ExampleIf() {
	etcd := etcd()
	locks, err := mutex.New(etcd, mutex.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	etcd.Txn(ctx).Then(clientv3.OpPut("/deploy/version", "7")).Commit()

	// The deployment starts only from the version that it was made for, and is marked in the same transaction.
	deploy := func() (*mutex.Lock, error) {
		return locks.TryLock(ctx, "deploy",
			mutex.If(clientv3.Compare(clientv3.Value("/deploy/version"), "=", "7")),
			mutex.Then(clientv3.OpPut("/deploy/running", "8")))
	}
	l, err := deploy()
	if err != nil {
		log.Fatal(err)
	}
	// What it did, and the lock, end together as well.
	err = l.UnlockWith([]clientv3.Op{clientv3.OpPut("/deploy/version", "8"), clientv3.OpDelete("/deploy/running")})
	fmt.Println("deployed:", err)

	_, err = deploy()
	fmt.Println(errors.Is(err, mutex.ErrCondition))
	// Output:
	// deployed: <nil>
	// true
}

func ExampleClient_Once() {
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
		ran, err := locks.Once(context.Background(), "daily-report", 24*time.Hour, report,
			mutex.PeriodOffset(6*time.Hour), // the day begins at six o'clock UTC
			mutex.AlertAfter(10*time.Minute))
		fmt.Println(ran, err)
	}
	// Output:
	// the report is sent
	// true <nil>
	// false <nil>
	// false <nil>
}

func ExampleClient_LockAll() {
	locks, err := mutex.New(etcd(), mutex.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	both, err := locks.LockAll(context.Background(), []string{"account/7", "account/3"}, mutex.Purpose("transfer"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(both.Names())
	fmt.Println("still held:", both.Context().Err() == nil)
	fmt.Println(both.Unlock())
	// Output:
	// [account/3 account/7]
	// still held: true
	// <nil>
}

func ExampleClient_Pipeline() {
	locks, err := mutex.New(etcd(), mutex.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	step := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	report, err := locks.Pipeline(context.Background(), "release/1.4", []mutex.Step{
		{Name: "build", Run: step(nil)},
		{Name: "test", Run: step(errors.New("2 tests failed"))},
		{Name: "publish", Run: step(nil)},
	}, mutex.AlertAfter(20*time.Minute)) // of the longest step
	fmt.Println(report.Stop, "because", err)
	for _, s := range report.Steps {
		fmt.Println(s.Name, s.State)
	}
	// Output:
	// failed because 2 tests failed
	// build done
	// test failed
	// publish not run
}
