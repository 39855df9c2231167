package app

import (
	"bytes"
	"html/template"
	"io/fs"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Templates are those of the pages by name. Each is parsed once, when somebody first asks for the page.
type Templates map[string]func() (*template.Template, error)

// ParseTemplates reads the templates that pages share. Each page is a file that fills the layout.
func ParseTemplates(files fs.FS, u URLs) (Templates, error) {
	shared, err := template.New("").Funcs(functions(u)).ParseFS(files, "layout.html", "parts.html",
		"icons.html", "rows.html", "lock-history.html", "chart.html")
	if err != nil {
		return nil, err
	}
	pages := Templates{}
	for _, name := range []string{"list", "lock", "free", "shared", "unlock", "unlock-found", "end-delay", "mark",
		"waiting", "timeline", "history", "audit", "status", "help", "problem"} {
		pages[name] = sync.OnceValues(func() (*template.Template, error) {
			t, err := shared.Clone()
			if err != nil {
				return nil, err
			}
			return t.ParseFS(files, name+".html")
		})
	}
	return pages, nil
}

// Render answers with a page, which is filled into a buffer first, so that a template that fails half-way does not
// become half a page.
func (s *App) Render(name string, view any) (Answer, error) {
	return s.RenderPart(name, "layout", view)
}

func (s *App) RenderPart(name, part string, view any) (Answer, error) {
	t, err := s.Templates[name]()
	if err != nil {
		return Answer{}, err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, part, view)
	return Answer{Type: "text/html; charset=utf-8", Body: b.Bytes()}, err
}

// functions are what templates can call. None of them returns a trusted type: everything is escaped.
func functions(u URLs) template.FuncMap {
	return template.FuncMap{
		"to":           u.To,
		"asset":        u.Asset,
		"iconURL":      u.Icon,
		"lockURL":      u.Lock,
		"hostPID":      HostPID,
		"spans":        text.Spans,
		"visible":      text.Visible,
		"prose":        text.Prose,
		"isPlain":      IsPlainASCII,
		"isPlainProse": func(s string) bool { return !text.NonASCII(s) && text.Prose(s) == s }, // its parts are escaped
		"nonASCII":     nonASCII,
		"utc":          UTC,
		"iso":          iso,
		"clock":        TimeOfDay,
		"day":          func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"thousands":    text.Thousands,
		"plural":       Plural,
		"endedIcon":    EndedIcon,
		"queryForms":   locks.TermsHelp,
		"queryRules":   func() string { return locks.QueryRules },
		"states":       metadata.States,
		"heldBack":     diagnosis.RuleText,
	}
}

// EndedIcon returns the icon for the word of how a hold ended.
func EndedIcon(word string) string {
	for cause, icon := range map[string]string{metadata.EndingAutoUnlocked: "stale",
		metadata.EndingAbandoned: "abandoned", metadata.EndingForced: "bad"} {
		if words, _ := metadata.EndingWordsFor(cause); words.Word == word {
			return icon
		}
	}
	return "released"
}

// IsPlainASCII reports whether s is ASCII and its own visible form, so that it needs no markup; nearly all text does
// not.
func IsPlainASCII(s string) bool { return !text.NonASCII(s) && text.Visible(s) == s }

// nonASCII reports whether a name holds characters that can pass for others; the page marks such names.
func nonASCII(name string) bool {
	const ellipsis = "…"
	if len(name) == MaxNameShown+len(ellipsis) {
		name = strings.TrimSuffix(name, ellipsis) // of text.Clip
	}
	return text.NonASCII(name)
}

// BoxText returns text for a one-line input, without characters that no keyboard types there.
func BoxText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// How much of a text a list shows, in bytes. The page of the lock shows all.
const (
	MaxNameShown = metadata.MaxNameBytes
	MaxWordShown = 80
	MaxLineShown = 240
)

// How long the texts of a force unlock may be, in characters.
const (
	MaxReason = 500
	MaxTicket = 100
)

// MaxLogText is how much of a text from a request the log takes, in bytes.
const MaxLogText = 256

// LogText returns a text from a request for the log: visible, and cut.
func LogText(s string) string { return text.Visible(text.Clip(s, MaxLogText)) }

func HostPID(host string, pid int64) string { return locks.HostPID(text.Clip(host, MaxWordShown), pid) }
