package leader_test

import (
	"context"
	"fmt"
	"log"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func ExampleLead() {
	etcd := etcdmemory.New().Connect().Client() // stands for the client of your etcd
	client, err := mutex.New(etcd, mutex.Options{Owner: "scheduler", Hostname: "host-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	inspector, err := inspect.New(etcd, inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}

	err = leader.Lead(context.Background(), client, "scheduler", leader.Options{Address: "10.0.0.7:8080"},
		func(ctx context.Context) error { // until ctx ends; to resign, return
			r, err := leader.Current(ctx, inspector, "scheduler") // as every other process may
			if err != nil {
				return err
			}
			fmt.Printf("%s on %s leads; ask it at %s\n", r.Owner, r.Hostname, leader.Address(r))
			return nil
		})
	fmt.Println(err)
	// Output:
	// scheduler on host-1 leads; ask it at 10.0.0.7:8080
	// <nil>
}
