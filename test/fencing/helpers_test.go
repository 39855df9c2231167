package fencing_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/locktest"
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
		fmt.Fprintln(os.Stdout, name, put(url+"/"+name, l.Token(), "late"))
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

// page is a resource that keeps the last write.
type page struct{ text atomic.Value }

func (p *page) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	p.text.Store(string(text))
}

func (p *page) read() string { return fmt.Sprint(p.text.Load()) }

// site serves one page that anybody writes, and one behind a fence.
type site struct {
	url          string
	open, fenced page
}

func serve(t testing.TB) *site {
	t.Helper()
	s := &site{}
	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.Named("page")}
	mux := http.NewServeMux()
	mux.Handle("PUT /open", &s.open)
	mux.Handle("PUT /fenced", fence.Handler(&s.fenced))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// put writes a page as the holder of the lock, who does not look at the lock any more.
func put(url string, token int64, text string) error {
	ctx, cancel := context.WithTimeout(fencing.NewContext(context.Background(), token), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(text))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &fencing.Transport{}}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusPreconditionFailed {
		err = fencing.ErrRefused
	} else if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// take is a lock of a client of its own.
func take(t testing.TB, s *locktest.Server, owner, name string) *mutex.Lock {
	t.Helper()
	l, err := s.Client(mutex.Options{Owner: owner}).TryLock(context.Background(), name)
	proctest.Must(t, err)
	return l
}
