package app

import (
	"net/http"
	"strings"
	"time"
)

// Answer is a response. It is complete before its first byte is sent.
type Answer struct {
	Status int // 0 = 200
	Type   string
	Body   []byte
	ETag   string
	Retry  time.Duration
	Header map[string]string // on top of the usual ones, or instead of them
}

// HandlerFunc answers a request of a caller who has the permission for it. Its error may be an [HTTPError].
type HandlerFunc func(r *Request) (Answer, error)

// NotModified returns the answer to a reader that has this version already.
func NotModified(r *Request, etag string) (Answer, bool) {
	if etag == "" || !matchesTag(r.Header.Values("If-None-Match"), etag) {
		return Answer{}, false
	}
	return Answer{Status: http.StatusNotModified, ETag: etag, Header: HeardHeader(r)}, true
}

// matchesTag reports whether one of the listed tags is this one; like all tags of pages it is weak.
func matchesTag(lists []string, etag string) bool {
	for _, list := range lists {
		for tag := range strings.SplitSeq(list, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// HeardHeader returns the header with the time at which etcd last answered, for clients that have this version already.
func HeardHeader(r *Request) map[string]string {
	return map[string]string{"Mutexdash-Heard": iso(r.Fresh.HeardAt)}
}

// HTTPError is an error for the user; as JSON, it is a problem of RFC 9457. Any other error is logged, and answered
// with [ErrInternal].
type HTTPError struct {
	Type       aboutBlank `json:"type"`
	Title      string     `json:"title"`            // short, for people
	Status     int        `json:"status"`           // of HTTP
	Detail     string     `json:"detail,omitempty"` // sentences for people; may quote hostile text
	Code       string     `json:"code"`             // stable word for programs
	Lock       any        `json:"lock,omitempty"`   // as it is now
	DelayCount int        `json:"delay_count,omitempty"`
	Delays     any        `json:"delays,omitempty"` // some of them

	// For people.
	Retry      time.Duration `json:"-"`
	Reloads    bool          `json:"-"` // the page asks again by itself then
	Name       string        `json:"-"` // the lock that was asked for, where there is one
	Link       string        `json:"-"` // to what explains it
	LinkText   string        `json:"-"`
	Command    string        `json:"-"` // that does what was refused, from where it is possible
	FormValues []string      `json:"-"` // into the form that was refused
	Endpoints  []string      `json:"-"` // of etcd
}

// aboutBlank is the type of all problems: RFC 9457 defines no other.
type aboutBlank struct{}

func (aboutBlank) MarshalText() ([]byte, error) { return []byte("about:blank"), nil }

func (p *HTTPError) Error() string { return p.Title + ": " + p.Detail }

func (p *HTTPError) RetrySeconds() int { return int(p.Retry / time.Second) }

// Problems without details.
var (
	ErrNotFound = &HTTPError{Status: http.StatusNotFound, Code: "not_found", Title: "No such page",
		Detail: "There is no page at this address."}
	ErrMethod = &HTTPError{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Title: "Not possible here",
		Detail: "This address does not accept this method."}
	ErrCrossOrigin = &HTTPError{Status: http.StatusForbidden, Code: "cross_origin", Title: "Refused",
		Detail: "The request came from another site."}
	ErrInternal = &HTTPError{Status: http.StatusInternalServerError, Code: "internal", Title: "Something broke",
		Detail: "The dashboard failed. Its log says why."}
	ErrTooSlowSearch = &HTTPError{Status: http.StatusServiceUnavailable, Code: "too_slow",
		Title: "The search took too long", Retry: time.Second,
		Detail: "It was stopped after 2 s. Make the regular expression simpler, or search for a part of the name."}
	ErrReaderLeft = &HTTPError{Status: http.StatusServiceUnavailable, Code: "left", Title: "Stopped",
		Detail: "The client left before the search finished."}
	ErrBusy = &HTTPError{Status: http.StatusServiceUnavailable, Code: "busy", Title: "Too many requests at once",
		Detail: "Try again in a moment.", Retry: time.Second}
)

// BadQuery refuses the parameters of a request; the sentence needs no full stop.
func BadQuery(text string) error {
	return &HTTPError{Status: http.StatusBadRequest, Code: "bad_query", Title: "Bad query", Detail: text + "."}
}

func BadBody(text string) error {
	return &HTTPError{Status: http.StatusBadRequest, Code: "bad_body", Title: "Bad request", Detail: text}
}
