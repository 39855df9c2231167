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

func ExampleClient_Lock() {
	locks := client(etcd(), mutex.Options{Owner: "deployer"})
	defer locks.Close()

	// Wait for a minute at most. Without a deadline Lock waits until the lock is free.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := locks.Lock(ctx, "deploy/shop", mutex.Purpose("release 1.4"))
	if held, ok := errors.AsType[*mutex.HeldError](err); ok {
		log.Fatalf("%s is deploying: %s", held.Holder.Owner, held.Holder.Purpose)
	}
	if err != nil {
		log.Fatal(err)
	}

	// l.Context ends when the lock is lost, and not with ctx.
	fmt.Println("held:", l.Context().Err() == nil)
	fmt.Println("released:", l.Unlock() == nil)
	fmt.Println("the context says so:", errors.Is(context.Cause(l.Context()), mutex.ErrUnlocked))
	// Output:
	// held: true
	// released: true
	// the context says so: true
}

func ExampleClient_Reserve() {
	locks := client(etcd(), mutex.Options{Owner: "ana"})
	defer locks.Close()
	ctx := context.Background()

	// No process holds a reservation: it stays when this program ends, for two hours at most.
	r, err := locks.Reserve(ctx, "db/migrate", "new disks, OPS-12", 2*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reserved:", r.Name)

	_, err = locks.TryLock(ctx, "db/migrate")
	if held, ok := errors.AsType[*mutex.HeldError](err); ok {
		fmt.Println("held by", held.Holder.Owner, "for", held.Holder.Purpose)
	}

	// Any process that knows the name and the UUID can release it.
	l, err := locks.Adopt(ctx, r.Name, r.UUID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", l.Unlock() == nil)
	// Output:
	// reserved: db/migrate
	// held by ana for new disks, OPS-12
	// released: true
}

func ExampleClient_Adopt() {
	parent := client(etcd(), mutex.Options{Owner: "importer"})
	defer parent.Close()
	ctx := context.Background()

	l, err := parent.Lock(ctx, "import")
	if err != nil {
		log.Fatal(err)
	}
	// Hand l.Name and l.UUID to the child, for instance in its environment.

	child := func(name, uuid string) error {
		adopted, err := parent.Adopt(ctx, name, uuid) // in the child process: with a client of its own
		if err != nil {
			return err // a *LostError: somebody else holds the lock by now, or nobody does
		}
		defer adopted.Detach() // the parent unlocks
		fmt.Println("same token:", adopted.Token() == l.Token())
		return adopted.Alive(ctx, "row 1 of 1")
	}
	fmt.Println(child(l.Name(), l.UUID()))
	fmt.Println("released:", l.Unlock() == nil)
	fmt.Println("too late:", errors.Is(child(l.Name(), l.UUID()), mutex.ErrNotHeld))
	// Output:
	// same token: true
	// <nil>
	// released: true
	// too late: true
}

func ExampleReentrant() {
	locks := client(etcd(), mutex.Options{Owner: "accounting"})
	defer locks.Close()

	add := func(ctx context.Context, opts ...mutex.Option) error {
		return locks.Do(ctx, "books", func(context.Context) error {
			fmt.Println("entry added")
			return nil
		}, opts...)
	}
	err := locks.Do(context.Background(), "books", func(ctx context.Context) error {
		_, again := errors.AsType[*mutex.AlreadyHeldError](add(ctx)) // fails at once instead of waiting for itself
		fmt.Println("refused:", again)
		return add(ctx, mutex.Reentrant()) // uses the hold of the outer Do
	})
	fmt.Println(err)
	// Output:
	// refused: true
	// entry added
	// <nil>
}

func ExampleLock_FinishRequested() {
	locks := client(etcd(), mutex.Options{Owner: "search"})
	defer locks.Close()
	ctx := context.Background()

	reindex := func(ctx context.Context) error {
		lock := mutex.FromContext(ctx)
		for batch := 1; batch <= 10_000; batch++ {
			select {
			case <-lock.FinishRequested(): // between two batches is a good moment to stop
				return lock.FinishRequestError()
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
			mutex.AskToFinish("deploy of the fix"), mutex.Owner("deploy"))
	})

	err := locks.Do(ctx, "search/reindex", reindex)
	if asked, isAsked := err.(*mutex.FinishRequestError); isAsked {
		fmt.Printf("%s asked to finish: %s\n", asked.Request.By, asked.Request.Reason)
	}
	// Output:
	// deploy asked to finish: deploy of the fix
}

func ExampleIf() {
	etcd := etcd()
	locks := client(etcd, mutex.Options{})
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
	locks := client(etcd(), mutex.Options{})
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
