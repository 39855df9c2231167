package fencing_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/fencing"
)

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
		{0, fencing.ErrBadToken, [][]string{{""}, {"41", "42"}, {"42", "42"}, {"41, 42"}, {"0"}, {"-1"}, {"+42"}, {"042"},
			{" 42"}, {"4_2"}, {"٤٢"}, {"9223372036854775808"}, {"\x00\xff<script>"}}},
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
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(fencing.Header, "7") // of an earlier hold, say
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
