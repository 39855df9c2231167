package mutexotel_test

import (
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexotel"
)

func traced(etcd *clientv3.Client) error {
	telemetry, err := mutexotel.New(mutexotel.Options{Owner: "billing"})
	if err != nil {
		return err
	}
	locks, err := mutex.New(etcd, mutex.Options{
		Owner: "billing", Hooks: telemetry.Hooks(), ContextOptions: mutexotel.TraceAttributes,
	})
	if err != nil {
		return err
	}
	return locks.Close()
}

func Example() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err == nil {
		err = traced(etcd)
	}
	if err != nil {
		panic(err)
	}
}

func TestDocumentedExampleCompiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/client-jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "<!-- compiled in pkg/mutexotel -->\n```go\n")
	block, _, closed := strings.Cut(block, "\n```")
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !found || !closed || !strings.Contains(strings.ReplaceAll(string(example), "\n\t", "\n"), block) {
		t.Errorf("this file has not what docs/client-jobs.md shows:\n%s", block)
	}
}
