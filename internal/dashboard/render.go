package dashboard

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
)

const typeHTML = "text/html; charset=utf-8"

// answer is a response that is complete before its first byte is sent, but for a stream.
type answer struct {
	Status int // 0 = 200
	Type   string
	Body   []byte
	Stream func(io.Writer) error // writes the body instead, piece by piece
	ETag   string
	Retry  time.Duration
	Header map[string]string // on top of the usual ones, or instead of them
}

// action answers a request of a caller who has the permission for it; its error goes to [Dashboard.fail].
type action func(r *request) (answer, error)

func (d *Dashboard) handle(need access.Permission, do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made := d.requestOf(r)
		if err := d.admit(made.caller, need); err != nil {
			d.fail(w, r, err)
			return
		}
		d.answer(w, made, do)
	}
}

// handleUnlock is handle for a force unlock. Who may not is told so before the body is read.
func (d *Dashboard) handleUnlock(kind string, do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made := d.requestOf(r)
		err := d.mayUnlock(made.caller)
		if err == nil {
			err = receive(w, r, kind)
		}
		if err == nil {
			d.answer(w, made, do)
			return
		}
		asked := wish{Hold: r.URL.Query().Get("hold")}
		asked.Name, _ = nameOf(made) // the API names it in the body
		d.record(made, asked, newAction(made, asked, ""), err)
		d.fail(w, r, err)
	}
}

// maxRequests is how many requests are worked on at once; they need no waiting, so more means that something is wrong.
const maxRequests = 256

// answer has a request worked on, or refuses it at once where there are too many: a queue would only make the wait
// longer for all. What depends on the network, a body that comes and an answer that goes, is no work: it would be for
// any caller to say how long it takes.
func (d *Dashboard) answer(w http.ResponseWriter, r *request, do action) {
	a, err := d.work(r, do)
	if err != nil {
		d.fail(w, r.Request, err)
		return
	}
	d.send(w, r.Request, a)
}

func (d *Dashboard) work(r *request, do action) (answer, error) {
	select {
	case d.tickets <- struct{}{}:
		defer func() { <-d.tickets }()
		return do(r)
	default:
		return answer{}, errBusy
	}
}

// notModified is the answer to a reader that has this version already.
func notModified(r *request, etag string) (answer, bool) {
	if etag == "" || !strings.Contains(r.Header.Get("If-None-Match"), etag) {
		return answer{}, false
	}
	return answer{Status: http.StatusNotModified, ETag: etag, Header: heard(r)}, true
}

// heard tells a reader that has this version already how fresh it still is.
func heard(r *request) map[string]string {
	return map[string]string{"Mutexdash-Heard": phrase.ISO(r.fresh.Heard)}
}

// minGzip is the size from which compressing is worth it.
const minGzip = 1 << 10

func (d *Dashboard) send(w http.ResponseWriter, r *http.Request, a answer) {
	h := w.Header()
	if a.Stream != nil {
		select {
		case d.streams <- struct{}{}:
			defer func() { <-d.streams }()
		default:
			d.fail(w, r, errBusy)
			return
		}
	}
	done, ok := d.room(len(a.Body))
	if !ok {
		d.fail(w, r, errBusy)
		return
	}
	defer done()
	for name, value := range a.Header {
		h.Set(name, value)
	}
	if a.ETag != "" {
		h.Set("ETag", a.ETag)
	}
	h.Set("Mutexdash-Version", d.config.Version)
	if a.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(a.Retry/time.Second)))
	}
	if a.Status == http.StatusNotModified {
		w.WriteHeader(a.Status)
		return
	}
	h.Set("Content-Type", a.Type)
	h.Set("Vary", "Accept-Encoding")
	pack := (len(a.Body) >= minGzip || a.Stream != nil) && acceptsGzip(r) && h.Get("Content-Encoding") == ""
	if pack {
		h.Set("Content-Encoding", "gzip")
	}
	if a.Stream != nil {
		d.stream(w, r, a)
		return
	}
	if pack {
		a.Body = d.packed(a.Body)
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.Body) // the reader went away: nobody to tell
	}
}

func acceptsGzip(r *http.Request) bool {
	for encoding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(encoding, " ", ""), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// packer returns a packer, whose tables take a megabyte, for one answer; done gives it back.
func (d *Dashboard) packer(w io.Writer) (z *gzip.Writer, done func()) {
	z, ok := d.packers.Get().(*gzip.Writer)
	if !ok {
		z = newPacker(gzip.BestSpeed)
	}
	z.Reset(w)
	return z, func() {
		z.Reset(io.Discard)
		d.packers.Put(z)
	}
}

func newPacker(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return z
}

func (d *Dashboard) packed(b []byte) []byte {
	var out bytes.Buffer
	z, done := d.packer(&out)
	defer done()
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

func compress(b []byte, level int) []byte {
	var out bytes.Buffer
	z := newPacker(level)
	z.Reset(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// parse reads all templates, once. Each page is a file that fills the layout.
func parse(files fs.FS, u urls) (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(functions(u)).ParseFS(files, "layout.html", "parts.html", "icons.html",
		"rows.html")
	if err != nil {
		return nil, err
	}
	parsed := map[string]*template.Template{}
	for _, name := range []string{"list", "lock", "shared", "unlock", "waiting", "owners", "history", "audit", "status",
		"help", "problem"} {
		t, err := shared.Clone()
		if err == nil {
			t, err = t.ParseFS(files, name+".html")
		}
		if err != nil {
			return nil, fmt.Errorf("template %s: %w", name, err)
		}
		parsed[name] = t
	}
	return parsed, nil
}

// render fills a page into a buffer, so that a template that fails half-way does not become half a page.
func (d *Dashboard) render(name string, view any) ([]byte, error) {
	return d.renderPart(name, "layout", view)
}

func (d *Dashboard) renderPart(name, part string, view any) ([]byte, error) {
	var b bytes.Buffer
	if err := d.templates[name].ExecuteTemplate(&b, part, view); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// functions are what templates can call. None of them returns a trusted type: everything is escaped.
func functions(u urls) template.FuncMap {
	return template.FuncMap{
		"to":           u.To,
		"asset":        u.Asset,
		"iconURL":      u.Icon,
		"spans":        text.Spans,
		"visible":      text.Visible,
		"prose":        text.Prose,
		"isPlain":      isPlain,
		"isPlainProse": isPlainProse,
		"nonASCII":     nonASCII,
		"short":        phrase.Duration,
		"utc":          phrase.UTC,
		"iso":          phrase.ISO,
		"clock":        phrase.TimeOfDay,
		"thousands":    phrase.Thousands,
		"plural":       phrase.Plural,
		"heldBack":     heldBack,
	}
}
