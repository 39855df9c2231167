// Package fencing keeps late writes of a former holder out of what the lock protects: the resource compares tokens.
// docs/fencing.md says which fence suits which resource, with examples and rules for all of them.
//
// Over HTTP, the client's [Transport] sends the token of the request's context, and the server's [Fence] wraps the
// handlers that write. In a database, the token is a column that the statement compares and writes, see [Exec]. A
// handler that writes to one needs [RequireToken] instead of a Fence: the check of the statement survives restarts and
// works across replicas.
package fencing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// DefaultWait is how long a request waits for older ones to leave unless the [Fence] says otherwise.
const DefaultWait = 10 * time.Second

// Store remembers the greatest token of each resource.
type Store interface {
	// Enter admits a write and remembers its token. The error is a *StaleError if a greater token came before, admitted
	// or not. Until leave is called no greater token is admitted, so that no write can be overtaken between its check
	// and its end: Enter waits for older writes to leave, until ctx ends. Writes with the same token may run at the
	// same time. leave may be called more than once.
	//
	// Any other error refuses the write, too: a fence that does not know stays closed.
	Enter(ctx context.Context, resource string, token int64) (leave func(), err error)
}

// Fence is HTTP middleware that lets a request through only if it carries the greatest token of its resource so far.
//
// A refused request gets an answer in application/problem+json: 412 if the token is stale, 428 if there is none, 400 if
// it is invalid, 503 if the store fails or an older request takes too long.
type Fence struct {
	Store Store // required
	// required: what the request writes to, as the server decides; see FixedResource
	Resource func(*http.Request) string
	Wait     time.Duration // how long a request waits for older ones to leave; DefaultWait when zero
	// OnRefused is called for every refused request, for logs and metrics; may be nil.
	OnRefused func(r *http.Request, e error)
}

// FixedResource returns a Resource function for a fence with a single resource.
func FixedResource(resource string) func(*http.Request) string {
	return func(*http.Request) string { return resource }
}

// Handler returns next behind the fence; next finds the token with [FromContext]. It panics if the fence has no Store
// or no Resource.
//
// The write must be over when next returns: put the fence inside an http.TimeoutHandler. Give the server a ReadTimeout:
// a client that stalls in the middle of a body stays inside the fence, and newer ones wait.
func (f Fence) Handler(next http.Handler) http.Handler {
	if f.Store == nil || f.Resource == nil {
		panic("fencing: a Fence needs a Store and a Resource")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, leave, err := f.enter(r)
		if err != nil {
			if f.OnRefused != nil {
				f.OnRefused(r, err)
			}
			WriteError(w, err)
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), token)))
	})
}

func (f Fence) enter(r *http.Request) (token int64, leave func(), err error) {
	if token, err = FromHeader(r.Header); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(f.Wait, DefaultWait))
	defer cancel()
	leave, err = f.Store.Enter(ctx, f.Resource(r), token)
	return token, leave, err
}

// RequireToken returns a handler that calls next for requests with a token. next finds the token with [FromContext] and
// must check it itself, in its write: see [Exec]. Other requests are answered as by a [Fence].
func RequireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := FromHeader(r.Header)
		if err != nil {
			WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), token)))
	})
}

// Header is the HTTP request header that carries the token, as a decimal number.
const Header = "Fencing-Token"

// SetHeader sets the token in the header of a request. [Transport] does so by itself.
func SetHeader(h http.Header, token int64) { h.Set(Header, strconv.FormatInt(token, 10)) }

// FromHeader returns the token of a request. The error is [ErrNoToken] or an [ErrBadToken]. A token has exactly one
// form, because readers could interpret others differently.
func FromHeader(h http.Header) (int64, error) {
	values := h.Values(Header)
	switch {
	case len(values) == 0:
		return 0, ErrNoToken
	case len(values) > 1:
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

// FromContext returns the token that ctx carries: that of [NewContext] or, in a handler behind a [Fence] or
// [RequireToken], that of the request. It is 0 if there is none.
func FromContext(ctx context.Context) int64 {
	token, _ := ctx.Value(contextKey{}).(int64)
	return token
}

// Transport is an http.RoundTripper that sends the token of the request's context with each request. A request without
// a token fails and is not sent: use another client for requests that need no lock.
type Transport struct {
	Base  http.RoundTripper               // sends the requests; http.DefaultTransport when nil
	Token func(ctx context.Context) int64 // returns the token, 0 or less if there is none; FromContext when nil
}

// RoundTrip sends the request with its token. Neither the request nor its header is changed.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(t.Base, http.DefaultTransport)
	find := t.Token
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
	SetHeader(r.Header, token)
	return base.RoundTrip(r)
}

// problem is the answer to a refused request, as in RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"` // stable, for programs
	Token  int64  `json:"token,omitempty"`
	Newest int64  `json:"newest,omitempty"`
}

// WriteError writes the response to a client whose write was refused with err, for handlers behind [RequireToken].
// Errors of other packages are answered with 503 and without their text, which might reveal too much.
func WriteError(w http.ResponseWriter, err error) {
	p := problemOf(err)
	p.Type = "about:blank"
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone away
}

func problemOf(err error) problem {
	stale, isStale := errors.AsType[*StaleError](err)
	switch {
	case isStale:
		return problem{Title: "The lock was lost", Status: http.StatusPreconditionFailed, Code: "stale_token",
			Token: stale.Token, Newest: stale.Newest,
			Detail: "A greater fencing token came before: another holder has the lock. Nothing was written. " +
				"Stop the work."}
	case errors.Is(err, ErrRefused):
		return problem{Title: "The lock was lost", Status: http.StatusPreconditionFailed, Code: "refused",
			Detail: "The fence refused the write: another holder has the lock, or the resource does not exist. " +
				"Nothing was written."}
	case errors.Is(err, ErrNoToken):
		return problem{Title: "A fencing token is needed", Status: http.StatusPreconditionRequired, Code: "no_token",
			Detail: "Hold the lock and send its token in the header " + Header + "."}
	case errors.Is(err, ErrBadToken):
		return problem{Title: "Not a fencing token", Status: http.StatusBadRequest, Code: "bad_token",
			Detail: "The header " + Header + " must be there once, with a positive decimal number of 64 bits."}
	}
	return problem{Title: "Not now", Status: http.StatusServiceUnavailable, Code: "unavailable",
		Detail: "The token could not be checked in time. Nothing was written."}
}

var (
	// ErrRefused matches the error of every write that a fence refused.
	ErrRefused = errors.New("refused by the fence")

	// ErrNoToken means that a request or a context carries no token.
	ErrNoToken = errors.New("no fencing token")

	// ErrBadToken means that a request carries something other than one valid token.
	ErrBadToken = errors.New("not a fencing token")

	// ErrTooManyResources means that a [Memory] has no room for another resource.
	ErrTooManyResources = errors.New("too many fenced resources")
)

// StaleError means that a greater token came before: another client has got the lock since. It is an [ErrRefused].
type StaleError struct {
	Resource string
	Token    int64 // of the write
	Newest   int64 // the greatest that was seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("token %d for %q is stale, %d came before", e.Token, e.Resource, e.Newest)
}

func (e *StaleError) Is(target error) bool { return target == ErrRefused }
