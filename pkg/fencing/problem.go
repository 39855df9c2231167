package fencing

import (
	"encoding/json"
	"errors"
	"net/http"
)

// problem is the answer to a request that was kept out, as in RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"` // stable, for programs
	Token  int64  `json:"token,omitempty"`
	Newest int64  `json:"newest,omitempty"`
}

// Answer writes the response to a client whose write was kept out with err, for handlers behind [Carry]. Errors of
// other packages are answered with 503 and without their text, which might reveal too much.
func Answer(w http.ResponseWriter, err error) {
	p := describe(err)
	p.Type = "about:blank"
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that went away needs no answer
}

func describe(err error) problem {
	var stale *StaleError
	switch {
	case errors.As(err, &stale):
		return problem{Title: "The lock was lost", Status: http.StatusPreconditionFailed, Code: "stale_token",
			Token: stale.Token, Newest: stale.Newest,
			Detail: "A greater fencing token came before: somebody else got the lock since. Nothing was written. " +
				"Stop the work."}
	case errors.Is(err, ErrRefused):
		return problem{Title: "The lock was lost", Status: http.StatusPreconditionFailed, Code: "refused",
			Detail: "The fence refused the write: somebody else got the lock since, or there is nothing of that " +
				"name. Nothing was written."}
	case errors.Is(err, ErrNoToken):
		return problem{Title: "A fencing token is needed", Status: http.StatusPreconditionRequired, Code: "no_token",
			Detail: "Hold the lock and send its token in the header " + Header + "."}
	case errors.Is(err, ErrBadToken):
		return problem{Title: "Not a fencing token", Status: http.StatusBadRequest, Code: "bad_token",
			Detail: "The header " + Header + " must be there once, with a positive decimal number of 64 bits."}
	}
	return problem{Title: "Not now", Status: http.StatusServiceUnavailable, Code: "unavailable",
		Detail: "Whether the token is the newest could not be told in time. Nothing was written."}
}
