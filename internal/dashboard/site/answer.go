package site

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
)

// Answer is a response. But for a stream it is complete before its first byte is sent.
type Answer struct {
	Status int // 0 = 200
	Type   string
	Body   []byte
	Stream func(io.Writer) error // writes the body instead, piece by piece
	ETag   string
	Retry  time.Duration
	Header map[string]string // on top of the usual ones, or instead of them
}

// Action answers a request of a caller who has the permission for it. Its error may be a [Problem].
type Action func(r *Request) (Answer, error)

// NotModified is the answer to a reader that has this version already.
func NotModified(r *Request, etag string) (Answer, bool) {
	if etag == "" || !matchesTag(r.Header.Values("If-None-Match"), etag) {
		return Answer{}, false
	}
	return Answer{Status: http.StatusNotModified, ETag: etag, Header: Heard(r)}, true
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

// Heard is the header that says when etcd was last heard, so that a reader who has this version knows how fresh it is.
func Heard(r *Request) map[string]string {
	return map[string]string{"Mutexdash-Heard": phrase.ISO(r.Fresh.Heard)}
}

// Redirect leads a reader to another address.
func Redirect(to string) Answer {
	return Answer{Status: http.StatusFound, Type: "text/plain; charset=utf-8", Body: []byte("Elsewhere.\n"),
		Header: map[string]string{"Location": to}}
}
