// Guest is a program of somebody else: a controller with a client of Kubernetes, a router and options of gRPC, which takes
// a lock. It is compiled, with the oldest versions of all these that we allow, and never run.
package main

import (
	"context"
	"log"
	"net/http"

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
	kubernetes, err := rest.HTTPClientFor(settings)
	if err != nil {
		return err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd:2379"},
		DialOptions: []grpc.DialOption{grpc.WithUserAgent("guest")}})
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
		err := locks.Do(r.Context(), "reconcile", func(context.Context) error {
			answer, err := kubernetes.Get(settings.Host)
			if err != nil {
				return err
			}
			return answer.Body.Close()
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	return http.ListenAndServe("127.0.0.1:8080", router)
}
