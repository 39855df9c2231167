package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

func (d *Dashboard) handle(need access.Permission, do app.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made := d.app.RequestFrom(r)
		if err := d.app.Authorize(made.Caller, need); err != nil {
			d.fail(w, r, err)
			return
		}
		d.answer(w, made, do)
	}
}

// The bodies of operators' actions.
const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// handleAction is handle for an operator's action. It refuses callers without the permission before it reads the body.
func (d *Dashboard) handleAction(o *actions.Operation, kind string, do app.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made := d.app.RequestFrom(r)
		err := o.Authorize(made.Caller)
		if err == nil {
			err = readBody(w, r, kind)
		}
		if err != nil {
			o.RecordRefusal(made, err)
			d.fail(w, r, err)
			return
		}
		d.answer(w, made, do)
	}
}

// maxRequests is the maximum number of concurrent requests. They are fast, so more means that something is wrong.
const maxRequests = 256

// answer serves a request, or refuses it at once if there are too many: a queue would only make all of them wait
// longer. Reading the body and writing the response do not count, because any caller could make them take forever.
func (d *Dashboard) answer(w http.ResponseWriter, r *app.Request, do app.HandlerFunc) {
	a, err := d.limitRequests(r, do)
	if err != nil {
		d.fail(w, r.Request, err)
		return
	}
	d.send(w, r.Request, a)
}

func (d *Dashboard) limitRequests(r *app.Request, do app.HandlerFunc) (app.Answer, error) {
	select {
	case d.requestSlots <- struct{}{}:
		defer func() { <-d.requestSlots }()
		return do(r)
	default:
		return app.Answer{}, app.ErrBusy
	}
}

// Limits of answers that wait for their readers.
const (
	smallAnswer     = 64 << 10
	maxPendingBytes = 64 << 20 // bytes of all answers that are not small
)

// reserveMemory reports whether another answer of this size may wait for its reader; done gives the memory back.
func (d *Dashboard) reserveMemory(size int) (done func(), ok bool) {
	if size <= smallAnswer {
		return func() {}, true
	}
	done = func() { d.outgoing.Add(-int64(size)) }
	if d.outgoing.Add(int64(size)) > maxPendingBytes {
		done()
		return nil, false
	}
	return done, true
}

func (d *Dashboard) send(w http.ResponseWriter, r *http.Request, a app.Answer) {
	h := w.Header()
	done, ok := d.reserveMemory(len(a.Body))
	if !ok {
		d.fail(w, r, app.ErrBusy)
		return
	}
	defer done()
	for name, value := range a.Header {
		h.Set(name, value)
	}
	if a.ETag != "" {
		h.Set("ETag", a.ETag)
	}
	h.Set("Mutexdash-Version", d.app.Config.Version)
	if a.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(a.Retry/time.Second)))
	}
	if a.Status == http.StatusNotModified {
		w.WriteHeader(a.Status)
		return
	}
	d.sendBody(w, r, a)
}

// sendBody sends an answer whose own headers are set.
func (d *Dashboard) sendBody(w http.ResponseWriter, r *http.Request, a app.Answer) {
	h := w.Header()
	h.Set("Content-Type", a.Type)
	h.Set("Vary", "Accept-Encoding")
	if len(a.Body) >= minGzip && acceptsGzip(r) && h.Get("Content-Encoding") == "" {
		h.Set("Content-Encoding", "gzip")
		a.Body = d.gzip(a.Body)
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.Body) // the reader went away: nobody to tell
	}
}

func (d *Dashboard) logRefusal(r *app.Request, p *app.HTTPError) {
	if logged, leftOut := d.app.Refusals.ShouldLog(r.Caller.Name, r.Now); logged {
		app.WithLeftOut(d.app.Config.Log.Warn(), leftOut).Str("path", app.LogText(r.URL.Path)).Str("why", p.Detail).
			Str("actor", r.Caller.Name).Str("groups", r.Caller.Groups).Str("client", r.Caller.Client).
			Msg("a request was refused")
	}
}

// fail answers a request with an error. It is the only place where errors become answers.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *app.HTTPError
	switch {
	case errors.Is(err, locks.ErrTooSlow):
		p = app.ErrTooSlowSearch
	case errors.Is(err, context.Canceled):
		p = app.ErrReaderLeft
	case !errors.As(err, &p):
		d.app.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
		p = app.ErrInternal
	}
	var a app.Answer
	asJSON := d.wantsJSON(r)
	if p.Code == "forbidden" && isRead(r) { // other attempts are in the audit trail
		d.logRefusal(d.app.RequestFrom(r), p)
	}
	if asJSON {
		a.Type = "application/problem+json"
		a.Body, err = json.Marshal(p)
	} else {
		p = d.linkToLock(r, p)
		made := d.app.RequestFrom(r)
		page := problemPage{d.app.Page(made, p.Title), p}
		page.Query = app.BoxText(p.Name)
		a, err = d.app.Render("problem", page)
	}
	if err != nil {
		d.app.Config.Log.Error().Err(err).Str("path", r.URL.Path).Msg("error page failed")
		a = app.Answer{Type: "text/plain; charset=utf-8", Body: []byte(p.Title + "\n")}
	}
	a.Status = p.Status
	a.Retry = p.Retry
	if (p.Code == "not_loaded" || p.Reloads) && !asJSON {
		a.Header = map[string]string{"Refresh": strconv.Itoa(p.RetrySeconds())} // works without JavaScript
	}
	d.send(w, r, a)
}

// linkToLock adds a link to the page of the lock to an error of a form.
func (d *Dashboard) linkToLock(r *http.Request, p *app.HTTPError) *app.HTTPError {
	name := r.URL.Query().Get("name")
	if p.Link != "" || name == "" {
		return p
	}
	if d.operationAt(r.URL.Path) == nil {
		return p
	}
	same := *p
	same.Link = d.app.URLs.Lock(name, r.URL.Query().Get("hold"))
	same.LinkText = "Back to the lock " + text.Visible(name)
	return &same
}

// operationAt returns the operation whose form or API has this path; nil if there is none.
func (d *Dashboard) operationAt(path string) *actions.Operation {
	for _, o := range d.actions.Operations {
		if below := strings.TrimPrefix(path, d.route); below == o.Page() || below == o.API() {
			return o
		}
	}
	return nil
}

func (d *Dashboard) wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, d.route+"api/")
}

type problemPage struct {
	app.Page
	Problem *app.HTTPError
}

const (
	maxBody     = 64 << 10        // of a POST, in bytes
	bodyTimeout = 2 * time.Second // in which it has to be here
)

// closeUnreadBody closes the connection after requests whose body is not read. Otherwise the server would wait for the
// rest of the body before it sends the response, and a client that announces a body and never sends it could tie up
// whatever the request holds.
func closeUnreadBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.ProtoMajor < 2 { // HTTP/2 waits for nothing
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func readBody(w http.ResponseWriter, r *http.Request, kind string) error {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || !strings.EqualFold(got, kind) {
		return &app.HTTPError{Status: http.StatusUnsupportedMediaType, Code: "bad_type", Title: "Wrong type",
			Detail: "The body must be " + kind + "."}
	}
	tooLarge := &app.HTTPError{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Title: "Too large",
		Detail: "The body may have at most 64 KiB."}
	if r.ContentLength > maxBody {
		return tooLarge
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer without a network has none
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &app.HTTPError{Status: http.StatusRequestTimeout, Code: "slow_body", Title: "Too slow",
			Detail: "The body did not arrive within 2 s. Nothing was done."}
	case err != nil:
		return app.BadBody("The body could not be read.")
	case len(body) > maxBody:
		return tooLarge
	}
	_ = control.SetReadDeadline(time.Time{}) // what goes on reading would take the deadline for the end of the caller
	w.Header().Del("Connection")
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// minGzip is the size from which compressing is worth it.
const minGzip = 1 << 10

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(encoding, " ", ""), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// gzip compresses an answer. Writers are pooled, because each takes a megabyte.
func (d *Dashboard) gzip(b []byte) []byte {
	z, ok := d.gzipWriters.Get().(*gzip.Writer)
	if !ok {
		z = newGzipWriter(gzip.BestSpeed)
	}
	defer d.gzipWriters.Put(z)
	return compress(z, b)
}

func newGzipWriter(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return z
}

func compress(z *gzip.Writer, b []byte) []byte {
	var out bytes.Buffer
	z.Reset(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	z.Reset(io.Discard) // the packer must not keep the answer
	return out.Bytes()
}
