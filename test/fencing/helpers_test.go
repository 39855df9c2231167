package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.FixedResource("page")}
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
