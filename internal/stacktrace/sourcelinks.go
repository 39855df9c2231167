package stacktrace

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/linktemplate"
)

// SourceLink leads from a frame of a backtrace to the line of code: an https address in which {file} and {line} stand
// for those of the frame. It is for files whose path begins with a prefix, which is left out of {file}.
type SourceLink struct{ prefix, template string }

// ParseSourceLink reads "/srv/app/=https://git.example/app/blob/main/{file}#L{line}". The prefix may be empty.
func ParseSourceLink(text string) (SourceLink, error) {
	prefix, template, ok := strings.Cut(text, "=")
	if !ok || !strings.Contains(template, "{file}") {
		return SourceLink{}, fmt.Errorf("the source link %q is not of the form PREFIX=https://host/path/{file}#L{line}",
			text)
	}
	if err := linktemplate.Check(template, []string{"file", "line"}); err != nil {
		return SourceLink{}, fmt.Errorf("the source link %q %w", text, err)
	}
	return SourceLink{prefix, template}, nil
}

// to is the address of a frame; empty where the file is another's, or climbs.
func (l SourceLink) to(f Frame) string {
	file, ours := strings.CutPrefix(f.File, l.prefix)
	if !ours || file == "" || f.Line == "" {
		return ""
	}
	parts := strings.Split(file, "/")
	for i, part := range parts {
		if part == "." || part == ".." || part == "" {
			return ""
		}
		parts[i] = linktemplate.Escape(part)
	}
	return strings.NewReplacer("{file}", strings.Join(parts, "/"), "{line}",
		linktemplate.Escape(f.Line)).Replace(l.template)
}

// link is where the code of an own frame can be read; the first link that fits counts.
func (t Reader) link(f Frame) string {
	for _, l := range t.sources {
		if address := l.to(f); address != "" && f.Own {
			return address
		}
	}
	return ""
}
