package fencing

import (
	"context"
	"net/http"
	"time"
)

// DefaultWait is how long a request waits for older ones to leave unless the [Fence] says otherwise.
const DefaultWait = 10 * time.Second

// Store remembers the greatest token of each resource.
type Store interface {
	// Enter admits a write. It is a *StaleError if a greater token came before, admitted or not; otherwise the token is
	// remembered. From the return until leave is called no greater token is admitted, so that no write can be overtaken
	// between its check and its end; Enter waits for that, until ctx ends. Writes with the same token may be in at the
	// same time. Leave may be called more than once.
	//
	// An error of any other kind keeps the write out as well: a fence that does not know does not open.
	Enter(ctx context.Context, resource string, token int64) (leave func(), err error)
}

// Fence is HTTP middleware that lets a request through only if it carries the greatest token of its resource so far.
//
// What is kept out gets an answer in application/problem+json: 412 when the token is stale, 428 when there is none, 400
// when it is not one, 503 when the store cannot tell or an older request takes too long.
type Fence struct {
	Store    Store                      // needed
	Resource func(*http.Request) string // needed: what the request writes to, decided by the server; see Named
	Wait     time.Duration              // how long a request waits for older ones to leave; DefaultWait when zero
	// Refused is called for every request that was kept out, for logs and metrics; may be nil.
	Refused func(r *http.Request, e error)
}

// Named returns a Resource function for fences around one resource.
func Named(resource string) func(*http.Request) string {
	return func(*http.Request) string { return resource }
}

// Handler returns next behind the fence; next finds the token with [FromContext]. It panics if the fence has no Store
// or no Resource.
//
// The write must be over when next returns. A next that leaves work to a goroutine or a queue, as http.TimeoutHandler
// does after its timeout, lets that work happen outside the fence; so the fence belongs inside of a TimeoutHandler.
// Give the server a ReadTimeout: a client that stops in the middle of a body stays inside, and newer ones wait.
func (f Fence) Handler(next http.Handler) http.Handler {
	if f.Store == nil || f.Resource == nil {
		panic("fencing: a Fence needs a Store and a Resource")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, leave, err := f.enter(r)
		if err != nil {
			if f.Refused != nil {
				f.Refused(r, err)
			}
			Answer(w, err)
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
	wait := f.Wait
	if wait == 0 {
		wait = DefaultWait
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	leave, err = f.Store.Enter(ctx, f.Resource(r), token)
	return token, leave, err
}

// Carry returns next for requests that carry a token. next finds the token with [FromContext] and must check it itself,
// with its write: see [Exec]. Other requests are answered as by a [Fence].
func Carry(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := FromHeader(r.Header)
		if err != nil {
			Answer(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), token)))
	})
}
