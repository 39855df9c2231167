package dashboard

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// Link is a link that operators configure, to logs or a runbook: an https address in which {name}, {owner}, {host},
// {pid}, {hold} and {purpose} stand for those of the lock.
type Link struct {
	Text     string
	template string
}

// linkFields are what a link can name.
func linkFields() []string { return []string{"name", "owner", "host", "pid", "hold", "purpose"} }

// ParseLink reads "logs=https://logs.example/?q={host}".
func ParseLink(text string) (Link, error) {
	name, template, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSpace(name) == "" {
		return Link{}, fmt.Errorf("the link %q is not of the form NAME=https://host/path?query", text)
	}
	if err := checkTemplate(template, linkFields()); err != nil {
		return Link{}, fmt.Errorf("the link %q %w", text, err)
	}
	return Link{name, template}, nil
}

// checkTemplate wants an https address in which nothing but these fields stands in braces, none of them in the host:
// data must not choose where the link leads to.
func checkTemplate(template string, fields []string) error {
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
	if climbs(template) {
		return errors.New("must not hold . or .. as a part of its path")
	}
	return nil
}

// climbs reports whether a browser would take a part of the path for a step up, or for none. However such a part is
// written, it is one.
func climbs(address string) bool {
	path, _, _ := strings.Cut(strings.TrimPrefix(address, "https://"), "#")
	path, _, _ = strings.Cut(path, "?")
	for part := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(path), "%2e", "."), "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// to is the address for a lock. What comes from the record is escaped so that it stays one value of a path or a query.
// It is empty where the record would have the link climb.
func (l Link) to(r *row) string {
	pid := ""
	if r.PID != 0 {
		pid = strconv.FormatInt(r.PID, 10)
	}
	escape := func(s string) string {
		return strings.ReplaceAll(url.QueryEscape(text.Clip(s, maxLineShown)), "+", "%20")
	}
	address := strings.NewReplacer("{name}", escape(r.Name), "{owner}", escape(r.Owner), "{host}", escape(r.Hostname),
		"{pid}", pid,
		"{hold}", escape(r.UUID), "{purpose}", escape(r.Purpose)).Replace(l.template)
	if climbs(address) {
		return ""
	}
	return address
}

// checkAncestors refuses what can not stand in frame-ancestors: only 'self' and https origins can.
func checkAncestors(list []string) error {
	for _, origin := range list {
		u, err := url.Parse(origin)
		switch {
		case origin == "'self'":
		case err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" ||
			u.Fragment != "" || u.User != nil || strings.ContainsAny(origin, " ;,'*"):
			return fmt.Errorf("the frame ancestor %q is neither 'self' nor an origin like https://portal.example",
				origin)
		}
	}
	return nil
}
