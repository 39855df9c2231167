package stacktrace

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/linktemplate"
)

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
	if err := linktemplate.Check(template, []string{"file", "line"}); err != nil {
		return SourceLink{}, fmt.Errorf("the source link %q %w", text, err)
	}
	return SourceLink{prefix, template}, nil
}

// to returns the URL for a frame; empty if the link does not apply, or the path contains "..".
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

// link returns the URL for an own frame, from the first link that applies.
func (t Reader) link(f Frame) string {
	for _, l := range t.sources {
		if address := l.to(f); address != "" && f.Own {
			return address
		}
	}
	return ""
}
