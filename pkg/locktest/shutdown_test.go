package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// In docs/client.md from here …

// serve works until the first SIGTERM, which ends the context of the work. A second SIGTERM ends the process.
func serve(locks *mutex.Client, work func(context.Context, *mutex.Client) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal does what signals do

	err := work(ctx, locks) // returns when everything it started has ended
	return errors.Join(err, locks.Close())
}

// … to here

// service is a program: it works under one lock and waits for another.
func service(endpoint string, stubborn bool) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "service"})
	if err != nil {
		return err
	}
	return serve(locks, func(ctx context.Context, locks *mutex.Client) error {
		var waiting sync.WaitGroup
		defer waiting.Wait()
		waiting.Go(func() { locks.Lock(ctx, "taken") })
		return locks.Do(ctx, "import", func(ctx context.Context) error {
			fmt.Println("works")
			<-ctx.Done()
			fmt.Println("told to stop")
			if stubborn {
				select {}
			}
			return nil
		})
	})
}

const serviceVariable = "LOCKTEST_SERVICE"

func TestMain(m *testing.M) {
	kind, endpoint, isService := strings.Cut(os.Getenv(serviceVariable), " ")
	if !isService {
		os.Exit(m.Run())
	}
	proctest.EndWithParent()
	if err := service(endpoint, kind == "stubborn"); err != nil {
		log.Fatal(err)
	}
}

// stopped starts the service as a process of its own, and tells it to stop while it works.
func stopped(t *testing.T, s *locktest.Server, kind string) *proctest.Process {
	t.Helper()
	cmd := proctest.Self(serviceVariable, kind+" "+s.Endpoint())
	cmd.Stderr = os.Stderr
	p := proctest.Start(t, cmd)
	says := func(line string) {
		t.Helper()
		if got := p.NextLine(t); got != line {
			t.Fatalf("the service said %q, want %q", got, line)
		}
	}
	// A record in etcd would not do: a service that is told to stop before it has the answer does not begin.
	says("works")
	s.AwaitWaiters("taken", 1)
	proctest.Must(t, p.Signal(syscall.SIGTERM))
	says("told to stop")
	return p
}

func TestStoppedServiceLeavesNothing(t *testing.T) {
	s := locktest.New(t)
	taken := s.Hold("taken")
	if code := stopped(t, s, "obedient").Wait(t); code != 0 {
		t.Errorf("the service ended with status %d", code)
	}
	taken.Unlock()
	s.AssertNothingLeft()
}

func TestSecondSignalKillsAServiceThatDoesNotStop(t *testing.T) {
	s := locktest.New(t)
	s.Hold("taken")
	p := stopped(t, s, "stubborn")
	s.AssertHeld("import")                         // it may still write: nobody else can have the lock
	again := time.NewTicker(50 * time.Millisecond) // a second one that follows at once may still count as the first
	defer again.Stop()
	for p.Running() {
		select {
		case <-again.C:
			p.Signal(syscall.SIGTERM)
		case <-p.Done():
		}
	}
	if p.State().Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the service ended with %v, want the signal", p.State())
	}
	s.AssertHeld("import") // until its auto-unlock
}

func TestGuideShowsThisCode(t *testing.T) {
	code, err := os.ReadFile("shutdown_test.go")
	proctest.Must(t, err)
	guide, err := os.ReadFile("../../docs/client.md")
	proctest.Must(t, err)
	_, rest, _ := strings.Cut(string(code), "from here …\n\n")
	shown, _, _ := strings.Cut(rest, "\n// … to here")
	if shown == "" || !strings.Contains(string(guide), shown) {
		t.Errorf("docs/client.md does not show\n%s", shown)
	}
}
