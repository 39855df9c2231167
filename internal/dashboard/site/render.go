package site

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Answer is a response that is complete before its first byte is sent, but for a stream.
type Answer struct {
	Status int // 0 = 200
	Type   string
	Body   []byte
	Stream func(io.Writer) error // writes the body instead, piece by piece
	ETag   string
	Retry  time.Duration
	Header map[string]string // on top of the usual ones, or instead of them
}

// Action answers a request of a caller who has the permission for it; its error goes to [Dashboard.fail].
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
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag,
				"W/") {
				return true
			}
		}
	}
	return false
}

// Heard tells a reader that has this version already how fresh it still is.
func Heard(r *Request) map[string]string {
	return map[string]string{"Mutexdash-Heard": phrase.ISO(r.Fresh.Heard)}
}

// ParseTemplates reads all templates, once. Each page is a file that fills the layout.
func ParseTemplates(files fs.FS, u URLs) (map[string]*template.Template, error) {
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

// Render answers with a page, which is filled into a buffer first, so that a template that fails half-way does not
// become half a page.
func (s *Site) Render(name string, view any) (Answer, error) {
	return s.RenderPart(name, "layout", view)
}

// RenderPart answers with a part of a page.
func (s *Site) RenderPart(name, part string, view any) (Answer, error) {
	var b bytes.Buffer
	err := s.Templates[name].ExecuteTemplate(&b, part, view)
	return Answer{Type: "text/html; charset=utf-8", Body: b.Bytes()}, err
}

// functions are what templates can call. None of them returns a trusted type: everything is escaped.
func functions(u URLs) template.FuncMap {
	return template.FuncMap{
		"to":           u.To,
		"asset":        u.Asset,
		"iconURL":      u.Icon,
		"spans":        text.Spans,
		"visible":      text.Visible,
		"prose":        text.Prose,
		"isPlain":      IsPlain,
		"isPlainProse": isPlainProse,
		"nonASCII":     nonASCII,
		"short":        text.Duration,
		"utc":          phrase.UTC,
		"iso":          phrase.ISO,
		"clock":        phrase.TimeOfDay,
		"thousands":    phrase.Thousands,
		"plural":       phrase.Plural,
		"heldBack":     HeldBack,
	}
}

// HeldBack says why an unlocker removes nothing now. A rule that is not known here stands as it is.
func HeldBack(rule string) string {
	switch staleness.Rule(rule) {
	case staleness.Gap:
		return "the unlocker was offline and is giving holders time to extend"
	case staleness.Stale:
		return "the unlocker's view of the locks is out of date"
	case staleness.Etcd:
		return "etcd takes no writes, so holders cannot extend either"
	case staleness.Clock:
		return "the unlocker's clock cannot be trusted"
	case staleness.Revision:
		return "etcd went back to an older revision"
	case staleness.Brake:
		return "too many locks are due at once"
	}
	return rule
}
