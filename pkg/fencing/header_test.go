package fencing_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/fencing"
)

func TestTokenOfARequest(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []string
		want   int64
		err    error
	}{
		{"one number", []string{"42"}, 42, nil},
		{"the greatest number", []string{"9223372036854775807"}, 9223372036854775807, nil},
		{"no header", nil, 0, fencing.ErrNoToken},
		{"an empty header", []string{""}, 0, fencing.ErrBadToken},
		{"two headers", []string{"41", "42"}, 0, fencing.ErrBadToken},
		{"the same twice", []string{"42", "42"}, 0, fencing.ErrBadToken},
		{"two in one header", []string{"41, 42"}, 0, fencing.ErrBadToken},
		{"zero", []string{"0"}, 0, fencing.ErrBadToken},
		{"a negative number", []string{"-1"}, 0, fencing.ErrBadToken},
		{"a plus sign", []string{"+42"}, 0, fencing.ErrBadToken},
		{"a leading zero", []string{"042"}, 0, fencing.ErrBadToken},
		{"a blank", []string{" 42"}, 0, fencing.ErrBadToken},
		{"an underscore", []string{"4_2"}, 0, fencing.ErrBadToken},
		{"other digits", []string{"٤٢"}, 0, fencing.ErrBadToken},
		{"more than 64 bits", []string{"9223372036854775808"}, 0, fencing.ErrBadToken},
		{"garbage", []string{"\x00\xff<script>"}, 0, fencing.ErrBadToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := fencing.FromHeader(http.Header{fencing.Header: c.values})
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %d and %v", got, err)
			}
		})
	}
}

func TestTransportSendsTheTokenOfTheContext(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
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
