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
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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

// page is a resource that keeps the last write.
type page struct {
	mu   sync.Mutex
	text string
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = string(text)
}

func (p *page) read() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

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
func put(url string, token int64, text string) (status int, err error) {
	ctx, cancel := context.WithTimeout(fencing.NewContext(context.Background(), token), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &fencing.Transport{}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// putPage is put with the answer as an error.
func putPage(url string, token int64, text string) error {
	status, err := put(url, token, text)
	switch {
	case err != nil:
		return err
	case status == http.StatusPreconditionFailed:
		return fencing.ErrRefused
	case status != http.StatusOK:
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// take is a lock of a client of its own.
func take(t testing.TB, s *locktest.Server, owner, name string) *mutex.Lock {
	t.Helper()
	l, err := s.Client(mutex.Options{Owner: owner}).TryLock(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
