package fencing

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// Header is the field of an HTTP request that carries the token, as a decimal number.
const Header = "Fencing-Token"

// Set writes the token to the header of a request, instead of any other. [Transport] does so by itself.
func Set(h http.Header, token int64) { h.Set(Header, strconv.FormatInt(token, 10)) }

// FromHeader returns the token of a request. The error is [ErrNoToken] or an [ErrBadToken]. There is one way to write a
// token: a repeated header, a sign, a blank or a leading zero is refused, because two readers could understand it
// differently.
func FromHeader(h http.Header) (int64, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return 0, ErrNoToken
	case 1:
	default:
		return 0, fmt.Errorf("%w: the header %s was sent %d times", ErrBadToken, Header, len(values))
	}
	token, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || token <= 0 || strconv.FormatInt(token, 10) != values[0] {
		return 0, fmt.Errorf("%w: the header %s must be a positive decimal number of 64 bits", ErrBadToken, Header)
	}
	return token, nil
}

type contextKey struct{}

// NewContext returns a context that carries the token, for the requests of a [Transport].
func NewContext(ctx context.Context, token int64) context.Context {
	return context.WithValue(ctx, contextKey{}, token)
}

// FromContext returns the token that ctx carries: that of [NewContext] or, in a handler behind a [Fence] or [Carry],
// that of the request. It is 0 if there is none.
func FromContext(ctx context.Context) int64 {
	token, _ := ctx.Value(contextKey{}).(int64)
	return token
}
