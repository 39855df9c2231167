package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"

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
