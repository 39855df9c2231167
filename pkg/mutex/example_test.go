package mutex_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// etcd stands for the client of your etcd. In these examples it is one in memory.
func etcd() *clientv3.Client { return etcdmemory.New().Connect().Client() }

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
