// Guest is a program of somebody else: a controller with a client of Kubernetes, a router and options of gRPC, which
// takes a lock. It is compiled, with the oldest versions of all these that we allow, and never run.
package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	settings, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd:2379"},
		DialOptions: []grpc.DialOption{grpc.WithUserAgent(settings.Host)}})
	if err != nil {
		return err
	}
	defer etcd.Close()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "guest"})
	if err != nil {
		return err
	}
	router := chi.NewRouter()
	router.Post("/reconcile", func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Do(r.Context(), "reconcile", reconcile); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: router, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

func reconcile(ctx context.Context) error { return ctx.Err() }
