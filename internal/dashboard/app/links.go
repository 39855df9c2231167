package app

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Link is a link that operators configure, to logs or a runbook: an https address in which {name}, {owner}, {host},
// {pid}, {hold} and {purpose} stand for those of the lock, and {trace} and {span} for the trace in which it was taken.
type Link struct {
	Text     string
	template string
}

// maxLinkValue is how much of a value goes into a link, in bytes.
const maxLinkValue = 240

// ParseLink reads "logs=https://logs.example/?q={host}".
func ParseLink(text string) (Link, error) {
	name, template, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSpace(name) == "" {
		return Link{}, fmt.Errorf("the link %q is not of the form NAME=https://host/path?query", text)
	}
	fields := []string{"name", "owner", "host", "pid", "hold", "purpose", "trace", "span"}
	if err := stacktrace.CheckURLTemplate(template, fields); err != nil {
		return Link{}, fmt.Errorf("the link %q %w", text, err)
	}
	return Link{name, template}, nil
}

// URL returns the address for a lock. What comes from the record is escaped so that it stays one value of a path or a
// query. It is empty if a value would lead to another path ("..") or the record has no trace for a link to one.
func (l Link) URL(r *locks.Row) string {
	escape := func(s string) string { return stacktrace.Escape(text.Clip(s, maxLinkValue)) }
	trace, span := hexID(r, metadata.AttributeTraceID, 32), hexID(r, metadata.AttributeSpanID, 16)
	if trace == "" && strings.Contains(l.template, "{trace}") || span == "" && strings.Contains(l.template, "{span}") {
		return ""
	}
	address := strings.NewReplacer("{name}", escape(r.Name), "{owner}", escape(r.Owner), "{host}", escape(r.Hostname),
		"{pid}", NumberOrEmpty(r.PID), "{hold}", escape(r.UUID), "{purpose}", escape(r.Purpose),
		"{trace}", trace, "{span}", span).Replace(l.template)
	if stacktrace.HasDotSegment(address) {
		return ""
	}
	return address
}

// hexID returns an attribute that is an id of so many hexadecimal digits; empty if it is anything else.
func hexID(r *locks.Row, attribute string, digits int) string {
	id, _ := r.Attributes[attribute].(string)
	if len(id) != digits || strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// CheckBaseURL returns an error, which calls the address what, unless it is empty or an http or https URL without
// query, fragment and user.
func CheckBaseURL(what, address string) error {
	u, err := url.Parse(address)
	if address == "" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == "" {
		return nil
	}
	return fmt.Errorf("%s %q is not of the form https://host/path", what, text.Clip(address, 100))
}

// SilenceURL returns the address of Alertmanager's form for a silence of all alerts about a lock; empty if
// Alertmanager's address is not known.
func (c *Config) SilenceURL(lock, comment string) string {
	if c.Alertmanager == "" {
		return ""
	}
	label := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text.NameLabel(lock))
	address := strings.TrimSuffix(c.Alertmanager, "/") + "/#/silences/new?filter=" +
		stacktrace.Escape(`{lock="`+label+`"}`)
	if comment != "" {
		address += "&comment=" + stacktrace.Escape(comment)
	}
	return address
}
