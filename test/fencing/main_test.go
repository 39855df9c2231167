package fencing_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// holderVariable makes this test binary a holder: it has the endpoint of etcd, the URL of the site and the time until
// auto-unlock.
const holderVariable = "FENCING_TEST_HOLDER"

func TestMain(m *testing.M) {
	world, ok := os.LookupEnv(holderVariable)
	if !ok {
		os.Exit(m.Run())
	}
	parts := strings.Fields(world)
	life, err := time.ParseDuration(parts[2])
	if err == nil {
		err = hold(parts[0], parts[1], life)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hold takes a lock, checks it a last time, and writes to both pages on command. It prints what it sees.
func hold(endpoint, url string, life time.Duration) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "paused"})
	if err != nil {
		return err
	}
	defer locks.Close()
	l, err := locks.TryLock(context.Background(), "page", mutex.AutoUnlockAfter(life))
	if err != nil {
		return err
	}
	if err := l.Context().Err(); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "held", l.Token())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for _, name := range []string{"open", "fenced"} {
		status, err := put(url+"/"+name, l.Token(), "late")
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, name, status)
	}
	select {
	case <-l.Lost():
		fmt.Fprintln(os.Stdout, context.Cause(l.Context()))
		fmt.Fprintln(os.Stdout, "not held any more:", errors.Is(l.Alive(context.Background()), mutex.ErrNotHeld))
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the loss was not noticed")
	}
}
