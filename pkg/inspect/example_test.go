package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// etcd stands for the client of your etcd. In these examples it is one in memory, in which these locks are held.
func etcd(names ...string) *clientv3.Client {
	client := etcdmemory.New().Connect().Client()
	holder, err := mutex.New(client, mutex.Options{Owner: "billing", Hostname: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		if _, err := holder.TryLock(context.Background(), name, mutex.Purpose("invoices")); err != nil {
			log.Fatal(err)
		}
	}
	return client
}

func ExampleInspector_List() {
	inspector, err := inspect.New(etcd("billing/july", "billing/august", "search"), inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for r, err := range inspector.List(context.Background(), "billing/") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s is held by %q on %q for %q\n", r.Name, r.Owner, r.Hostname, r.Purpose)
	}
	// Output:
	// billing/august is held by "billing" on "host-1" for "invoices"
	// billing/july is held by "billing" on "host-1" for "invoices"
}

func ExampleInspector_Watch() {
	client := etcd("billing/july")
	inspector, err := inspect.New(client, inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for info, err := range inspector.Watch(context.Background(), "billing/july") {
		switch {
		case err != nil:
			fmt.Println("etcd does not answer:", err) // Watch goes on
		case info.Holder() != nil:
			fmt.Printf("held by %q, %d wait\n", info.Holder().Owner, len(info.Waiters))
			r := &info.Holder().Record
			if err := inspector.ForceUnlock(context.Background(), r, "ann", "an example"); err != nil {
				log.Fatal(err)
			}
		default:
			fmt.Println("free")
			return
		}
	}
	// Output:
	// held by "billing", 0 wait
	// free
}

func ExampleInspector_ForceUnlock() {
	client := etcd("billing/july")
	inspector, err := inspect.New(client, inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	info, err := inspector.Get(ctx, "billing/july")
	if err != nil {
		log.Fatal(err)
	}
	seen := info.Holder() // show this to whoever decides
	fmt.Println(inspector.ForceUnlock(ctx, &seen.Record, "ann", "host-1 is dead"))

	// The hold that was seen is over. Whoever holds the lock now is not touched.
	err = inspector.ForceUnlock(ctx, &seen.Record, "ann", "host-1 is dead")
	fmt.Println(errors.Is(err, metadata.ErrChanged))
	// Output:
	// <nil>
	// true
}
