// Package stacktrace parses the backtraces of various languages, and links their frames to source code.
package stacktrace

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Frame is one line of a backtrace.
type Frame struct {
	Text string // the line as recorded, trimmed
	Func string // empty if the line was not understood
	File string
	Line string
	Code string // the source line, if the runtime recorded it
	Own  bool   // code of the program itself, not of a runtime or library
	URL  string // of the source code
}

// Section is a run of frames that are either all or none the program's own code.
type Section struct {
	Foreign bool
	Fold    bool // there are enough foreign frames to hide them at first
	Frames  []Frame
}

// Limits of what a page shows of a backtrace.
const (
	maxFrames     = 256
	maxTraceBytes = 64 << 10
	minFold       = 3 // foreign frames in a row that are folded
)

// Trace is a backtrace, newest frame first.
type Trace struct {
	Sections  []Section
	First     *Frame // the first frame of own code; nil if there is none
	Frames    int
	Truncated bool // the backtrace is longer than what is shown
	Bytes     int
}

// Parser parses backtraces of various languages.
type Parser struct {
	framePatterns []*regexp.Regexp // of frames, by language; a line that matches none is shown as it is
	foreignPaths  []string         // substrings of the paths of runtimes and libraries
	sources       []SourceLink
	foreignFuncs  []string // first words of functions of runtimes, libraries and our own client

	arguments *regexp.Regexp // of a call, as Go writes them
}

func NewParser(sources []SourceLink) Parser {
	return Parser{
		sources:   sources,
		arguments: regexp.MustCompile(`\([^()*]*\)$`),
		framePatterns: []*regexp.Regexp{
			// Python: File "app/jobs.py", line 12, in run
			regexp.MustCompile(`^File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<func>.+))?$`),
			// Ruby: app/jobs/run.rb:118:in 'perform'
			regexp.MustCompile(`^(?P<file>[^\s:][^:]*):(?P<line>\d+):in ['\x60](?P<func>[^']*)'$`),
			// Java: at com.shop.Run.perform(Run.java:42)
			regexp.MustCompile(`^at (?P<func>[^\s(]+)\((?P<file>[^:()]+\.(?:java|kt|scala|groovy))(?::(?P<line>\d+))?\)$`),
			// JavaScript: at perform (/srv/app/run.js:12:7), at /srv/app/run.js:12:7
			regexp.MustCompile(`^at (?:(?P<func>.+) \()?(?P<file>(?:file://|node:|/|\w:\\|[\w@.])[^()]*?):(?P<line>\d+):\d+\)?$`),
			// Go: /srv/app/run.go:42 in main.run, main.run /srv/app/run.go:42, main.run (/srv/app/run.go:42),
			// /srv/app/run.go:42 +0x1d
			regexp.MustCompile(`^(?P<func>[^\s(][^\s]*?)\s+\(?(?P<file>[^\s()]+\.(?:go|s)):(?P<line>\d+)\)?(?: \+0x[0-9a-f]+)?$`),
			regexp.MustCompile(`^(?P<file>[^\s()]+\.(?:go|s)):(?P<line>\d+)(?: \+0x[0-9a-f]+|\s+(?:in )?(?P<func>\S+))?$`),
			// Anything else that names a file and a line: lib/run.ex:42: App.run/1
			regexp.MustCompile(`^(?P<file>[\w./@+-]*\w\.\w{1,5}):(?P<line>\d+)(?::\d+)?(?::?\s+(?:in )?(?P<func>.+))?$`),
		},
		foreignPaths: []string{
			"/gems/", "/lib/ruby/", "<internal:", "/bundler/", "bin/bundle", // Ruby
			"/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", // Python
			"/pkg/mod/", "@v", "/vendor/", "/usr/local/go/src/", "/usr/lib/go", "/sdk/go", "_cgo_", // Go
			"node_modules/", "node:", // JavaScript
			"/deps/", "/.cargo/", "/rustc/",
		},
		foreignFuncs: []string{
			"runtime.", "testing.", "net/http.", "sync.", "reflect.", "context.", "os.", "io.", "database/sql.",
			"internal/", "github.com/clustermutex/unlocker/pkg/", "github.com/spf13/cobra.",
			"java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "kotlin.", "scala.", "org.springframework.",
			"org.apache.", "io.netty.",
		},
	}
}

// Parse parses a backtrace; it returns nil for an empty one.
func (t Parser) Parse(text string) *Trace {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	out := &Trace{Bytes: len(text)}
	if len(text) > maxTraceBytes {
		text, out.Truncated = text[:maxTraceBytes], true
	}
	var frames []Frame
	for raw := range strings.SplitSeq(text, "\n") {
		line := strings.Trim(raw, " \t\r")
		if line == "" || len(frames) > 0 && raw[0] <= ' ' && t.mergeContinuation(line, &frames[len(frames)-1]) {
			continue
		}
		if len(frames) == maxFrames {
			out.Truncated = true
			break
		}
		frames = append(frames, t.parseFrame(line))
	}
	out.Frames = len(frames)
	out.arrange(frames)
	return out
}

// arrange finds the first own frame and folds foreign ones. If no frame is own, all are shown.
func (t *Trace) arrange(frames []Frame) {
	first := slices.IndexFunc(frames, func(f Frame) bool { return f.Own })
	if first >= 0 {
		t.First = &frames[first]
	}
	for len(frames) > 0 {
		foreign := !frames[0].Own
		n := slices.IndexFunc(frames, func(f Frame) bool { return f.Own == foreign })
		if n < 0 {
			n = len(frames)
		}
		t.Sections = append(t.Sections, Section{foreign && first >= 0, foreign && first >= 0 && n >= minFold,
			frames[:n]})
		frames = frames[n:]
	}
}

func (t Parser) parseFrame(line string) Frame {
	const longest = 1 << 10 // longer lines are not parsed, because matching them takes too long
	f := Frame{Text: line}
	for _, shape := range t.framePatterns {
		if len(line) > longest {
			break
		}
		m := shape.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		f.File = m[shape.SubexpIndex("file")]
		f.Line = m[shape.SubexpIndex("line")]
		f.Func = m[shape.SubexpIndex("func")]
		f.Own = !t.isForeign(f)
		f.URL = t.link(f)
		return f
	}
	return f
}

// mergeContinuation adds an indented line to the frame above it, and reports whether it belongs there: Go writes file
// and line below the function, Python the source below file and line.
func (t Parser) mergeContinuation(line string, above *Frame) bool {
	switch f := t.parseFrame(line); {
	case f.File == "" && above.Code == "" && strings.HasPrefix(above.Text, `File "`):
		above.Code = line
	case f.File == "" && above.Code != "" && strings.Trim(line, "~^ ") == "": // a mark below the source
	case f.File != "" && f.Func == "" && above.File == "":
		f.Text, f.Func = above.Text+" "+line, t.arguments.ReplaceAllString(above.Text, "")
		f.Own = !t.isForeign(f)
		*above = f
	default:
		return false
	}
	return true
}

func (t Parser) isForeign(f Frame) bool {
	return slices.ContainsFunc(t.foreignPaths, func(path string) bool { return strings.Contains(f.File, path) }) ||
		slices.ContainsFunc(t.foreignFuncs, func(name string) bool { return strings.HasPrefix(f.Func, name) })
}

func (f Frame) Position() string {
	if f.Line == "" {
		return f.File
	}
	return f.File + ":" + f.Line
}

// SourceLink links a frame to its source code: an https URL with {file} and {line}. It applies to files whose path
// begins with a prefix, which {file} leaves out.
type SourceLink struct{ prefix, template string }

// ParseSourceLink reads "/srv/app/=https://git.example/app/blob/main/{file}#L{line}". The prefix may be empty.
func ParseSourceLink(text string) (SourceLink, error) {
	prefix, template, ok := strings.Cut(text, "=")
	if !ok || !strings.Contains(template, "{file}") {
		return SourceLink{}, fmt.Errorf("the source link %q is not of the form PREFIX=https://host/path/{file}#L{line}",
			text)
	}
	if err := CheckURLTemplate(template, []string{"file", "line"}); err != nil {
		return SourceLink{}, fmt.Errorf("the source link %q %w", text, err)
	}
	return SourceLink{prefix, template}, nil
}

// url returns the URL for a frame; empty if the link does not apply, or the path contains "..".
func (l SourceLink) url(f Frame) string {
	file, ours := strings.CutPrefix(f.File, l.prefix)
	if !ours || file == "" || f.Line == "" {
		return ""
	}
	parts := strings.Split(file, "/")
	for i, part := range parts {
		if part == "." || part == ".." || part == "" {
			return ""
		}
		parts[i] = Escape(part)
	}
	return strings.NewReplacer("{file}", strings.Join(parts, "/"), "{line}",
		Escape(f.Line)).Replace(l.template)
}

// link returns the URL for an own frame, from the first link that applies.
func (t Parser) link(f Frame) string {
	for _, l := range t.sources {
		if address := l.url(f); address != "" && f.Own {
			return address
		}
	}
	return ""
}

// CheckURLTemplate returns an error unless the template is an https URL with no fields but these, and none in its host.
func CheckURLTemplate(template string, fields []string) error {
	for _, field := range regexp.MustCompile(`\{[^}]*\}?|\}`).FindAllString(template, -1) {
		if !slices.Contains(fields, strings.Trim(field, "{}")) || len(field) < 2 || field[len(field)-1] != '}' {
			return fmt.Errorf("has %s, but there are only {%s}", field, strings.Join(fields, "}, {"))
		}
	}
	u, err := url.Parse(regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(template, "x"))
	host, _, _ := strings.Cut(strings.TrimPrefix(template, "https://"), "/")
	host, _, _ = strings.Cut(host, "?")
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(host, "{}#") {
		return errors.New("must begin with https:// and a host that is always the same")
	}
	if HasDotSegment(template) {
		return errors.New("must not hold . or .. as a part of its path")
	}
	return nil
}

// HasDotSegment reports whether the path has a segment . or .., in any encoding: a browser would resolve it.
func HasDotSegment(address string) bool {
	path, _, _ := strings.Cut(strings.TrimPrefix(address, "https://"), "#")
	path, _, _ = strings.Cut(path, "?")
	for part := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(path), "%2e", "."), "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// Escape escapes a value so that it stays one part of a path or a query.
func Escape(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }
