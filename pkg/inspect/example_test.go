package inspect_test

import (
	"context"
	"fmt"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/inspect"
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
