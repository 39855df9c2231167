package fencing_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/fencing"
)

// send asks the handler to write with the token as it stands in a header.
func send(h http.Handler, path string, token ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPut, path, nil)
	r.Header[fencing.Header] = token
	h.ServeHTTP(w, r)
	return w
}

func TestFenceLetsTheNewestHolderIn(t *testing.T) {
	var written []int64
	var refused []error
	fence := fencing.Fence{
		Store:    fencing.NewMemory(0),
		Resource: func(r *http.Request) string { return r.URL.Path },
		Refused:  func(_ *http.Request, err error) { refused = append(refused, err) },
	}
	h := fence.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		written = append(written, fencing.FromContext(r.Context()))
	}))
	for _, c := range []struct {
		name, path string
		token      []string
		want       int
		code       string
	}{
		{"the first", "/a", []string{"5"}, 200, ""},
		{"the same again", "/a", []string{"5"}, 200, ""},
		{"a newer one", "/a", []string{"9"}, 200, ""},
		{"the first, late", "/a", []string{"5"}, 412, "stale_token"},
		{"one digit less is less, not more", "/a", []string{"8"}, 412, "stale_token"},
		{"as number, not as text", "/a", []string{"10"}, 200, ""},
		{"an old one for another resource", "/b", []string{"5"}, 200, ""},
		{"none", "/a", nil, 428, "no_token"},
		{"garbage", "/a", []string{"12a"}, 400, "bad_token"},
		{"two", "/a", []string{"12", "13"}, 400, "bad_token"},
		{"none of those was remembered", "/a", []string{"10"}, 200, ""},
	} {
		refused = nil
		before := len(written)
		w := send(h, c.path, c.token...)
		if w.Code != c.want || (len(written) > before) != (c.want == 200) || (len(refused) == 1) != (c.want != 200) {
			t.Errorf("%s: status %d, %d writes, told of %v", c.name, w.Code, len(written)-before, refused)
		}
		if c.code == "" {
			continue
		}
		var problem struct {
			Status        int
			Code, Detail  string
			Token, Newest int64
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%s: %v in %q", c.name, err, w.Body)
		}
		if problem.Status != c.want || problem.Code != c.code || problem.Detail == "" ||
			(c.code == "stale_token" && problem.Newest != 9) {
			t.Errorf("%s: answered %s", c.name, w.Body)
		}
	}
}

func TestFenceThatDoesNotKnowStaysClosed(t *testing.T) {
	for name, store := range map[string]fencing.Store{
		"a store that fails": enter(func(context.Context) (func(), error) {
			return nil, errors.New("disk of host-7 is full")
		}),
		"a write before it that does not end": enter(func(ctx context.Context) (func(), error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}),
		"a memory that would have to forget it": full(t),
	} {
		t.Run(name, func(t *testing.T) {
			h := fencing.Fence{Store: store, Resource: fencing.Named("a"), Wait: time.Millisecond}.Handler(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the write got in") }))
			w := send(h, "/", "5")
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("status %d, %v", w.Code, w.Header())
			}
			if body := w.Body.String(); len(body) == 0 || strings.Contains(body, "host-7") {
				t.Errorf("answered %s", body)
			}
		})
	}
}

func TestFenceIsLeftWhenTheHandlerPanics(t *testing.T) {
	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.Named("a"), Wait: time.Minute}
	func() {
		defer func() { _ = recover() }()
		send(fence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })),
			"/", "5")
	}()
	if w := send(fence.Handler(http.NotFoundHandler()), "/", "6"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

func TestFenceWithoutAStoreIsNotBuilt(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a fence that cannot refuse was built")
		}
	}()
	fencing.Fence{Resource: fencing.Named("a")}.Handler(http.NotFoundHandler())
}

// enter is a Store.
type enter func(ctx context.Context) (func(), error)

func (f enter) Enter(ctx context.Context, _ string, _ int64) (func(), error) { return f(ctx) }

func full(t *testing.T) *fencing.Memory {
	t.Helper()
	m := fencing.NewMemory(1)
	enters(t, m, "another", 1)()
	return m
}
