package stacktrace

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

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
