package dashboard

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/actions"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

func (d *Dashboard) handle(need access.Permission, do site.Action) http.HandlerFunc {
	return d.handleIn(&d.server, need, do)
}

// handleIn answers requests about the locks of a cluster.
func (d *Dashboard) handleIn(c *server, need access.Permission, do site.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made, _ := d.site.RequestOf(r).Part(c.site.URLs.Cluster)
		if err := c.site.Admit(made.Caller, need); err != nil {
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
func (d *Dashboard) handleAction(c *server, o *actions.Operation, kind string, do site.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		made, _ := d.site.RequestOf(r).Part(c.site.URLs.Cluster)
		refused := o.May(made.Caller)
		err := refused
		if err == nil {
			err = receive(w, r, kind, bodyWithin)
		}
		if err != nil {
			o.Refused(made, err)
			if refused != nil && kind == formType {
				err = d.keep(w, made, o, err)
			}
			d.fail(w, r, err)
			return
		}
		a, err := d.work(made, do)
		if errors.Is(err, site.ErrBusy) && kind == formType {
			err = o.Keep(made, err)
		}
		if err != nil {
			d.fail(w, r, err)
			return
		}
		d.send(w, r, a)
	}
}

// keep adds to the refusal of a form what was typed into it, if that has come along with the request: a browser without
// JavaScript would lose it. Nobody waits for it, and no more than some are read at once.
func (d *Dashboard) keep(w http.ResponseWriter, r *site.Request, o *actions.Operation, refusal error) error {
	select {
	case d.kept <- struct{}{}:
		defer func() { <-d.kept }()
	default:
		return refusal
	}
	if receive(w, r.Request, formType, keptWithin) != nil {
		return refusal
	}
	return o.Keep(r, refusal)
}

// maxRequests is how many requests are worked on at once; they need no waiting, so more means that something is wrong.
const maxRequests = 256

// answer has a request worked on, or refuses it at once where there are too many: a queue would only make the wait
// longer for all. What depends on the network, a body that comes and an answer that goes, is no work: it would be for
// any caller to say how long it takes.
func (d *Dashboard) answer(w http.ResponseWriter, r *site.Request, do site.Action) {
	a, err := d.work(r, do)
	if err != nil {
		d.fail(w, r.Request, err)
		return
	}
	d.send(w, r.Request, a)
}

func (d *Dashboard) work(r *site.Request, do site.Action) (site.Answer, error) {
	select {
	case d.tickets <- struct{}{}:
		defer func() { <-d.tickets }()
		return do(r)
	default:
		return site.Answer{}, site.ErrBusy
	}
}

// minGzip is the size from which compressing is worth it.
const minGzip = 1 << 10

func (d *Dashboard) send(w http.ResponseWriter, r *http.Request, a site.Answer) {
	h := w.Header()
	if a.Stream != nil {
		select {
		case d.streams <- struct{}{}:
			defer func() { <-d.streams }()
		default:
			d.fail(w, r, site.ErrBusy)
			return
		}
	}
	done, ok := d.room(len(a.Body))
	if !ok {
		d.fail(w, r, site.ErrBusy)
		return
	}
	defer done()
	for name, value := range a.Header {
		h.Set(name, value)
	}
	if a.ETag != "" {
		h.Set("ETag", a.ETag)
	}
	h.Set("Mutexdash-Version", d.site.Config.Version)
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
func (d *Dashboard) sendBody(w http.ResponseWriter, r *http.Request, a site.Answer) {
	h := w.Header()
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
