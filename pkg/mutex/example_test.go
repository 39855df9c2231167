package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// etcd stands for the client of your etcd. In these examples it is one in memory.
func etcd() *clientv3.Client { return etcdmemory.New().Connect().Client() }

// client is a lock client whose options are known to be good.
func client(etcd *clientv3.Client, o mutex.Options) *mutex.Client {
	locks, err := mutex.New(etcd, o)
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

func Example() {
	locks, err := mutex.New(etcd(), mutex.Options{Owner: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	sendInvoices := func(ctx context.Context) error {
		for _, customer := range []string{"Acme", "Initech"} {
			if ctx.Err() != nil { // lost, or the caller's context ended
				return context.Cause(ctx)
			}
			fmt.Println("sent to", customer)
			if err := mutex.FromContext(ctx).Alive(ctx, "sent to", customer); err != nil {
				return err
			}
		}
		return nil
	}
	err = locks.Do(context.Background(), "invoices/2026-08", sendInvoices,
		mutex.Purpose("send the invoices of August"),
		mutex.AlertAfter(10*time.Minute),
		mutex.AutoUnlockAfter(time.Hour))
	fmt.Println(err)
	// Output:
	// sent to Acme
	// sent to Initech
	// <nil>
}

func ExampleClient_TryLock() {
	locks := client(etcd(), mutex.Options{Owner: "report", Hostname: "host-1"})
	defer locks.Close()
	ctx := context.Background()

	first, err := locks.TryLock(ctx, "books", mutex.Purpose("close the books"),
		mutex.AutoUnlockAfter(2*time.Hour+time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer first.Unlock()

	_, err = locks.TryLock(ctx, "books")
	if held, ok := errors.AsType[*mutex.HeldError](err); ok {
		fmt.Println("held by", held.Holder.Owner, "to", held.Holder.Purpose)
	}
	line, _, _ := strings.Cut(err.Error(), " (pid ")
	fmt.Println(line, "...")
	// Output:
	// held by report to close the books
	// lock "books" is held by report on host-1 ...
}

func ExampleLock_Guard() {
	etcd := etcd()
	locks := client(etcd, mutex.Options{})
	defer locks.Close()
	ctx := context.Background()
	l, err := locks.Lock(ctx, "balance")
	if err != nil {
		log.Fatal(err)
	}
	write := func(value string) bool {
		r, err := etcd.Txn(ctx).If(l.Guard()).Then(clientv3.OpPut("/balance", value)).Commit()
		return err == nil && r.Succeeded
	}
	fmt.Println("while the lock is held:", write("100"))
	l.Unlock()
	next, err := locks.Lock(ctx, "balance")
	if err != nil {
		log.Fatal(err)
	}
	defer next.Unlock()
	fmt.Println("under the next hold:", write("0"))
	// Output:
	// while the lock is held: true
	// under the next hold: false
}

func ExampleLock_Context() {
	etcd := etcd()
	locks := client(etcd, mutex.Options{})
	defer locks.Close()
	l, err := locks.Lock(context.Background(), "a")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock()

	// Somebody removes the record by hand.
	etcd.Txn(context.Background()).Then(clientv3.OpDelete("/mutexes/a/", clientv3.WithPrefix())).Commit()

	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	// Output:
	// lock "a" was lost: its record is gone, and whoever removed it left no note
}

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
