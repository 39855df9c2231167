package fencing

import (
	"context"
	"fmt"
	"net/http"
)

// Transport is an http.RoundTripper that sends the token of the request's context with each request. One is enough for
// all locks. A request without a token is an error and is not sent: use another client for what needs no lock.
type Transport struct {
	Base  http.RoundTripper               // what sends the requests; http.DefaultTransport when nil
	Token func(ctx context.Context) int64 // where the token comes from; FromContext when nil. 0 or less is no token
}

// RoundTrip sends the request with its token. Neither the request nor its header is changed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	find := t.Token
	if base == nil {
		base = http.DefaultTransport
	}
	if find == nil {
		find = FromContext
	}
	token := find(r.Context())
	if token <= 0 {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes the body, whatever happens
		}
		return nil, fmt.Errorf("send a fenced request: the context has %w", ErrNoToken)
	}
	r = r.Clone(r.Context())
	Set(r.Header, token)
	return base.RoundTrip(r)
}
