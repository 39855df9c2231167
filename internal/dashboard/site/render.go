package site

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ParseTemplates reads all templates, once. Each page is a file that fills the layout.
func ParseTemplates(files fs.FS, u URLs) (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(functions(u)).ParseFS(files, "layout.html", "parts.html", "icons.html",
		"rows.html", "timeline.html")
	if err != nil {
		return nil, err
	}
	parsed := map[string]*template.Template{}
	for _, name := range []string{"list", "lock", "free", "shared", "unlock", "end-delay", "gentle", "waiting",
		"owners", "history", "audit", "status", "help", "problem", "which", "clusters"} {
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
		"capital":      phrase.Capital[metadata.State],
		"endedIcon":    EndedIcon,
		"states":       metadata.States,
		"heldBack":     phrase.HeldBack,
	}
}

// EndedIcon is the icon of how a hold ended, which is told by its word.
func EndedIcon(word string) string {
	for _, e := range metadata.Endings() {
		if e.Word != word {
			continue
		}
		switch e.Ended {
		case metadata.EndedAutoUnlocked:
			return "stale"
		case metadata.EndedAbandoned:
			return "abandoned"
		case metadata.EndedForced:
			return "bad"
		}
	}
	return "released"
}
