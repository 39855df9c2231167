package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
)

func TestConfiguredLinksLeadWhereTheyAlwaysLead(t *testing.T) {
	link, err := setup.ParseLink("logs=https://logs.example/{owner}?host={host}&q={name}+{pid}#{hold}")
	if err != nil {
		t.Fatal(err)
	}
	s := infested()
	d := s.dashboard(t, func(c *setup.Config) { c.Links = []setup.Link{link} })
	for _, name := range hostile() {
		if len(name) > 4000 || strings.ContainsAny(name, "\xff\xe2") {
			continue
		}
		for _, href := range attributes(ok(t, d, "/lock?name="+url.QueryEscape(name)), "href") {
			if u, err := url.Parse(href); strings.HasPrefix(href, "https:") &&
				(err != nil || u.Host != "logs.example" || u.Query().Get("host") != name ||
					strings.Count(u.EscapedPath(), "/") != 1) {
				t.Errorf("%.40q: the link leads to %s", name, href)
			}
		}
	}
	page := ok(t, busy().dashboard(t, func(c *setup.Config) { c.Links = []setup.Link{link} }),
		"/lock?name="+stuck)
	want := `<a href="https://logs.example/billing?host=billing-7f9c&amp;q=billing%2Finvoice-run&#43;17#` +
		uuid(stuck) + `" rel="noopener noreferrer" target="_blank">logs</a>`
	if !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "&#43;", "+")) {
		t.Errorf("the page has no %s", want)
	}
}

func TestLinksThatCannotBeTrustedAreRefused(t *testing.T) {
	for _, bad := range []string{"", "logs", "=https://a/", "logs=http://a/", "logs=javascript:alert(1)",
		"logs=https://{host}/", "logs=https://a.{owner}.example/", "logs=https://u:p@a/",
		"logs=https:///{name}", "logs=https://a/{nam}", "logs=https://a/{name", "logs=https://a/name}", "logs={name}",
		"logs=//a/{name}", "logs=https://a?{}"} {
		if _, err := setup.ParseLink(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestOnlyNamedPagesMayFrameOurs(t *testing.T) {
	d := busy().dashboard(t, func(c *setup.Config) {
		c.FrameAncestors = []string{"'self'",
			"https://portal.example"}
	})
	w := get(d, "/")
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp,
		"frame-ancestors 'self' https://portal.example;") || w.Header().Get("X-Frame-Options") != "" {
		t.Errorf("the headers are %v", w.Header())
	}
	for _, bad := range []string{"*", "https://*.example", "http://portal.example", "portal.example",
		"https://portal.example/path", "https://a; script-src *", "https://a b", "'none'", ""} {
		config := newScene().config()
		config.FrameAncestors = []string{bad}
		if _, err := dashboard.New(config); err == nil {
			t.Errorf("the ancestor %q is accepted", bad)
		}
	}
}
