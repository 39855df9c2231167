package route_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/clustermutex/unlocker/internal/etcdmemory"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/route"
)

func Example() {
	clusters := map[string]*mutex.Client{}
	for _, name := range []string{"eu-1", "eu-2"} {
		etcd := etcdmemory.New().Connect().Client() // stands for the client of your etcd
		locks, err := mutex.New(etcd, mutex.Options{Owner: "billing"})
		if err != nil {
			log.Fatal(err)
		}
		defer locks.Close()
		clusters[name] = locks
	}
	table := filepath.Join(os.TempDir(), "example-routes.yaml")
	defer os.Remove(table)
	text := "{default: {cluster: eu-1}, routes: [{segment: billing, cluster: eu-2}]}"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}

	locks, err := route.New(route.File(table), clusters, route.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(context.Background(), "billing/2026-08", func(context.Context) error {
		_, err := clusters["eu-2"].TryLock(context.Background(), "billing/2026-08")
		fmt.Println("held in eu-2:", err != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held in eu-2: true
	// <nil>
}
