package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
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

func TestFenceAdmitsTheNewestHolder(t *testing.T) {
	var written []int64
	var refused []error
	fence := fencing.Fence{
		Store:     fencing.NewMemory(0),
		Resource:  func(r *http.Request) string { return r.URL.Path },
		OnRefused: func(_ *http.Request, err error) { refused = append(refused, err) },
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

func TestFenceStaysClosedIfItsStoreFails(t *testing.T) {
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
			h := fencing.Fence{Store: store, Resource: fencing.FixedResource("a"), Wait: time.Millisecond}.Handler(
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

func TestFenceIsReleasedIfTheHandlerPanics(t *testing.T) {
	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.FixedResource("a"), Wait: time.Minute}
	func() {
		defer func() { _ = recover() }()
		send(fence.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })),
			"/", "5")
	}()
	if w := send(fence.Handler(http.NotFoundHandler()), "/", "6"); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// books is a database in which every statement writes so many rows.
type books struct {
	rows, statements int64
	err              error
}

func (b *books) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	b.statements++
	return driver.RowsAffected(b.rows), b.err
}

func TestStatementWithoutAFenceIsNotRun(t *testing.T) {
	for _, c := range []struct {
		token string
		arg   any
		db    books
		runs  int64
		want  int
	}{
		{"5", int64(5), books{rows: 1}, 1, http.StatusOK},
		{"5", sql.Named("token", int64(5)), books{rows: 1}, 1, http.StatusOK},
		{"5", int64(5), books{rows: 0}, 1, http.StatusPreconditionFailed},
		{"5", int64(5), books{rows: 2}, 1, http.StatusServiceUnavailable},
		{"5", int64(5), books{err: errors.New("no such table")}, 1, http.StatusServiceUnavailable},
		{"5", int64(4), books{rows: 1}, 0, http.StatusServiceUnavailable},
		{"", int64(5), books{rows: 1}, 0, http.StatusBadRequest},
	} {
		w := send(fencing.RequireToken(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := fencing.Exec(r.Context(), &c.db, fencing.FromContext(r.Context()), "", c.arg); err != nil {
				fencing.WriteError(w, err)
			}
		})), "/", c.token)
		if w.Code != c.want || c.db.statements != c.runs {
			t.Errorf("%q, %v: status %d after %d statements", c.token, c.arg, w.Code, c.db.statements)
		}
	}
	if err := fencing.Exec(t.Context(), &books{rows: 1}, 0, "", int64(0)); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("without a lock: %v", err)
	}
}

func TestFenceRequiresAStore(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a fence that cannot refuse was built")
		}
	}()
	fencing.Fence{Resource: fencing.FixedResource("a")}.Handler(http.NotFoundHandler())
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

func TestTokenOfARequest(t *testing.T) {
	type answer struct {
		token int64
		err   error
		of    [][]string // what a header may have
	}
	for _, c := range []answer{
		{42, nil, [][]string{{"42"}}},
		{math.MaxInt64, nil, [][]string{{"9223372036854775807"}}},
		{0, fencing.ErrNoToken, [][]string{nil}},
		{0, fencing.ErrBadToken, [][]string{{""}, {"41", "42"}, {"42", "42"}, {"41, 42"}, {"0"}, {"-1"}, {"+42"},
			{"042"}, {" 42"}, {"4_2"}, {"٤٢"}, {"9223372036854775808"}, {"\x00\xff<script>"}}},
	} {
		for _, values := range c.of {
			got, err := fencing.FromHeader(http.Header{fencing.Header: values})
			if got != c.token || !errors.Is(err, c.err) {
				t.Errorf("%q: got %d and %v", values, got, err)
			}
		}
	}
}

func TestTransportSendsTheTokenOfTheContext(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header[fencing.Header]
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &fencing.Transport{}}
	r, err := http.NewRequestWithContext(fencing.NewContext(t.Context(), 42), http.MethodPut, server.URL, nil)
	proctest.Must(t, err)
	r.Header.Set(fencing.Header, "7") // of an earlier hold, say
	answer, err := client.Do(r)
	proctest.Must(t, err)
	answer.Body.Close()
	if len(got) != 1 || got[0] != "42" {
		t.Errorf("the server got %q", got)
	}
	if left := r.Header.Get(fencing.Header); left != "7" {
		t.Errorf("the caller's request was changed to %q", left)
	}
}

func TestTransportSendsNothingWithoutAToken(t *testing.T) {
	body := &closing{Reader: strings.NewReader("a")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://localhost", body)
	proctest.Must(t, err)
	sent := false
	transport := &fencing.Transport{
		Base:  roundTrip(func(*http.Request) (*http.Response, error) { sent = true; return nil, io.EOF }),
		Token: func(context.Context) int64 { return 0 },
	}
	answer, err := transport.RoundTrip(r)
	if err == nil {
		answer.Body.Close()
	}
	if !errors.Is(err, fencing.ErrNoToken) || sent || !body.closed {
		t.Errorf("got %v; sent: %t; body closed: %t", err, sent, body.closed)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }
