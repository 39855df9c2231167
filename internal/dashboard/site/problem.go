package site

import (
	"encoding/json"
	"net/http"
	"time"
)

// Problem is an answer that is not what was asked for. It is the only error that says something to the user; any other
// error is logged and answered with a problem that says nothing.
type Problem struct {
	Status   int    // of HTTP
	Code     string // stable word for programs
	Title    string // short, for people
	Detail   string // sentences for people; may quote hostile text
	Retry    time.Duration
	Again    bool   // the page asks again by itself then
	Name     string // the lock that was asked for, where there is one
	Link     string // to what explains it
	LinkText string
	Command  string   // that does what was refused, from where it is possible
	Typed    []string // into the form that was refused
	Lock     any      // as it is now, for programs
	Delays   any      // of the lock, for programs
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// MarshalJSON writes the problem as RFC 9457 wants it.
func (p *Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
		Code   string `json:"code"`
		Lock   any    `json:"lock,omitempty"`
		Delays any    `json:"delays,omitempty"`
	}{"about:blank", p.Title, p.Status, p.Detail, p.Code, p.Lock, p.Delays})
}

// Problems without details.
var (
	ErrNotFound = &Problem{Status: http.StatusNotFound, Code: "not_found", Title: "No such page",
		Detail: "There is nothing at this address."}
	ErrMethod = &Problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "Not possible here",
		Detail: "This address does not take such requests."}
	ErrCrossOrigin = &Problem{Status: http.StatusForbidden, Code: "cross_origin", Title: "Refused",
		Detail: "The request came from another site."}
	ErrInternal = &Problem{Status: http.StatusInternalServerError, Code: "internal", Title: "Something broke",
		Detail: "The dashboard made a mistake. Its log says more."}
	ErrTooSlowSearch = &Problem{Status: http.StatusServiceUnavailable, Code: "too_slow",
		Title: "The search took too long", Retry: time.Second,
		Detail: "It was stopped after 2 s. Make the regular expression simpler, or search for a part of the name."}
	ErrReaderLeft = &Problem{Status: http.StatusServiceUnavailable, Code: "left", Title: "Stopped",
		Detail: "The reader left before the search was done."}
	ErrBusy = &Problem{Status: http.StatusServiceUnavailable, Code: "busy", Title: "Too many requests at once",
		Detail: "Try again in a moment.", Retry: time.Second}
)

// BadQuery refuses the parameters of a request; the sentence needs no full stop.
func BadQuery(text string) error {
	return &Problem{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query", Detail: text + "."}
}

// BadBody refuses the body of a request.
func BadBody(text string) error {
	return &Problem{Status: http.StatusBadRequest, Code: "bad_body", Title: "Bad request", Detail: text}
}
