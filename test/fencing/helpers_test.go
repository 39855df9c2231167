package fencing_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
func take(t testing.TB, etcd *clientv3.Client, owner, name string) *mutex.Lock {
	t.Helper()
	locks, err := mutex.New(etcd, mutex.Options{Owner: owner, Hostname: "host-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := locks.TryLock(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// forceUnlock does what an operator does about a holder that seems dead. It stands in for an auto-unlock, which the
// tests would have to wait for.
func forceUnlock(t testing.TB, etcd *clientv3.Client, name string) {
	t.Helper()
	l := protocol.DefaultLayout()
	store := lockstore.New(etcd, l)
	now := time.Now()
	doc, _, err := store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	const why = "its machine does not answer"
	_, err = store.Do(t.Context(), protocol.ActionForceUnlock, protocol.Subject{Hold: &doc.Record},
		protocol.Action{ID: "1", At: metadata.Time{Time: now}, Actor: "ann", Source: "cli", Lock: name, UUID: doc.UUID,
			Token: doc.Token, Reason: why, Result: "success"})
	if err != nil {
		t.Fatal(err)
	}
}
