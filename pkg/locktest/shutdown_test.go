package locktest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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

// service is a program: it works under two locks and waits for a third one.
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
		var jobs sync.WaitGroup
		for _, name := range []string{"import", "export", "taken"} {
			jobs.Go(func() {
				locks.Do(ctx, name, func(ctx context.Context) error {
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
		jobs.Wait()
		return nil
	})
}

const serviceVariable = "LOCKTEST_SERVICE"

func TestMain(m *testing.M) {
	kind, endpoint, isService := strings.Cut(os.Getenv(serviceVariable), " ")
	if !isService {
		os.Exit(m.Run())
	}
	go func() { // until the test is gone, however it ended
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := service(endpoint, kind == "stubborn"); err != nil {
		log.Fatal(err)
	}
}

// process is a service that runs as a process of its own.
type process struct {
	*exec.Cmd
	says *bufio.Scanner
}

// start runs the service, and returns when it works.
func start(t *testing.T, s *locktest.Server, kind string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serviceVariable+"="+kind+" "+s.Endpoint())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, says: bufio.NewScanner(out)}
	t.Cleanup(func() { p.Process.Kill() })
	// A record in etcd would not do: a service that is told to stop before it has the answer does not begin.
	p.awaitTwice(t, "works")
	s.AssertHeld("import")
	s.AssertHeld("export")
	s.AwaitWaiters("taken", 1)
	return p
}

// awaitTwice waits until both jobs have said so.
func (p *process) awaitTwice(t *testing.T, line string) {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { p.Process.Kill() })
	defer late.Stop()
	for n := range 2 {
		if !p.says.Scan() || p.says.Text() != line {
			t.Fatalf("the service said %q and %v, want %q from two jobs, not from %d", p.says.Text(), p.says.Err(),
				line, n)
		}
	}
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func TestServiceThatIsToldToStopLeavesNothing(t *testing.T) {
	s := locktest.New(t)
	taken := s.Hold("taken")
	p := start(t, s, "obedient")
	p.terminate(t)
	p.awaitTwice(t, "told to stop")
	if err := p.Wait(); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	taken.Unlock()
	s.AssertNothingLeft()
}

func TestSecondSignalKillsAServiceThatDoesNotStop(t *testing.T) {
	s := locktest.New(t)
	s.Hold("taken")
	p := start(t, s, "stubborn")
	p.terminate(t)
	p.awaitTwice(t, "told to stop")
	s.AssertHeld("import") // it may still write: nobody else can have the lock
	ended := make(chan error)
	go func() { ended <- p.Wait() }()
	again := time.NewTicker(50 * time.Millisecond) // a second one that follows at once may still count as the first
	defer again.Stop()
	var exit *exec.ExitError
	for waits := true; waits; {
		select {
		case <-again.C:
			p.Process.Signal(syscall.SIGTERM)
		case err := <-ended:
			exit, _ = errors.AsType[*exec.ExitError](err)
			waits = false
		}
	}
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the service ended with %v, want the signal", exit)
	}
	s.AssertHeld("import") // until its auto-unlock
}

func TestGuideShowsThisCode(t *testing.T) {
	code, err := os.ReadFile("shutdown_test.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(code), "from here …\n\n")
	shown, _, _ := strings.Cut(rest, "\n// … to here")
	if shown == "" || !strings.Contains(string(guide), shown) {
		t.Errorf("docs/client.md does not show\n%s", shown)
	}
}
