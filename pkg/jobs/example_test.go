package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/etcdembed"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/tasks"
)

func Example() {
	etcd, stop := etcd() // stands for your etcd
	defer stop()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	invoices, err := tasks.New(etcd, locks, "invoices", tasks.Options{
		MaxAttempts: 2,
		Lock:        []mutex.Option{mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(5 * time.Minute)},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for _, customer := range []string{"Acme", "Initech"} {
		if _, err := invoices.Add(ctx, "2026-08/"+customer, customer); err != nil {
			log.Fatal(err)
		}
	}

	send := func(customer string) error {
		if customer == "Acme" {
			return errors.New("the address is wrong")
		}
		return nil
	}
	for {
		captured, err := invoices.Capture(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		if len(captured) == 0 {
			break // of a real worker: wait a little
		}
		for _, task := range captured {
			state := tasks.StateDone
			note := ""
			if err := send(task.Data()); err != nil {
				state = tasks.StateFailed
				note = err.Error()
			}
			if err := task.Finish(state, note); err != nil {
				log.Print(err) // lost: another worker has it, or will
			}
		}
	}
	all, err := invoices.List(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, task := range all {
		fmt.Println(task.Name, task.State, task.Note, task.Attempts, task.Exhausted)
	}
	// Output:
	// 2026-08/Acme failed the address is wrong 2 true
	// 2026-08/Initech done  0 false
}

// etcd is one in this process.
func etcd() (*clientv3.Client, func()) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		log.Fatal(err)
	}
	var conf etcdembed.Config
	var server *etcdembed.Server
	for try := range 5 { // another process may be quicker with the port
		conf = etcdembed.Config{Name: "default", Dir: filepath.Join(dir, fmt.Sprint(try)), Client: free(), Peer: free(),
			Throwaway: true}
		if server, err = etcdembed.Start(context.Background(), conf); err == nil {
			break
		}
	}
	if err != nil {
		log.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + conf.Client}, MaxUnaryRetries: 1,
		Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() { c.Close(); server.Stop(); os.RemoveAll(dir) }
}

func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
