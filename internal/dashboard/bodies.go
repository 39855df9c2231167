package dashboard

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

const (
	maxBody    = 16 << 10        // of a POST, in bytes
	bodyWithin = 2 * time.Second // in which it has to be here

	maxKept    = 64                     // forms of callers who may not, that are read at once
	keptWithin = 250 * time.Millisecond // in which such a form has to be here
)

// unread closes the connection after requests whose body nobody reads. Otherwise the server would wait for the rest of
// the body before it sends the answer, and who announces a body and sends none could hold up everything that is held
// meanwhile.
func unread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.ProtoMajor < 2 { // HTTP/2 waits for nothing
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// receive reads the body of a POST of this type, and puts it into the place of the one that comes over the network.
func receive(w http.ResponseWriter, r *http.Request, kind string, within time.Duration) error {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || !strings.EqualFold(got, kind) {
		return &site.Problem{Status: http.StatusUnsupportedMediaType, Code: "bad_type", Title: "Wrong type",
			Detail: "The body must be " + kind + "."}
	}
	tooLarge := &site.Problem{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Title: "Too large",
		Detail: "The body may have 16 KiB."}
	if r.ContentLength > maxBody {
		return tooLarge
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(within)) // a writer without a network has none
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &site.Problem{Status: http.StatusRequestTimeout, Code: "slow_body", Title: "Too slow",
			Detail: "The body did not arrive within 2 s. Nothing was done."}
	case err != nil:
		return site.BadBody("The body cannot be read.")
	case len(body) > maxBody:
		return tooLarge
	}
	_ = control.SetReadDeadline(time.Time{}) // what goes on reading would take the deadline for the end of the caller
	w.Header().Del("Connection")
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
