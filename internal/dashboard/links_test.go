package dashboard_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/pkg/metadata"
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

func TestALinkToATraceIsThereWhereTheRecordHasOne(t *testing.T) {
	link, err := setup.ParseLink("trace=https://traces.example/{trace}?span={span}")
	if err != nil {
		t.Fatal(err)
	}
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, test := range []struct{ trace, span, want string }{
		{trace, span, "https://traces.example/" + trace + "?span=" + span},
		{"", span, ""},
		{trace, "", ""},
		{strings.ToUpper(trace), span, ""},
		{trace + "0", span, ""},
		{strings.Repeat("0", 32), span, ""},
		{"../../../../../../../../../etc/pas", span, ""},
	} {
		r := metadata.Record{Name: "a", Attributes: map[string]any{metadata.AttributeTraceID: test.trace,
			metadata.AttributeSpanID: test.span}}
		if got := link.To(&locks.Row{Record: &r}); got != test.want {
			t.Errorf("%q, %q: the link leads to %q, want %q", test.trace, test.span, got, test.want)
		}
	}
	if got := link.To(&locks.Row{Record: &metadata.Record{}}); got != "" {
		t.Errorf("without a trace: %q", got)
	}
}

func source(t *testing.T, text string) stacktrace.SourceLink {
	t.Helper()
	link, err := stacktrace.ParseSourceLink(text)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestOwnFramesLeadToTheirCode(t *testing.T) {
	s := newScene()
	s.add(hold{name: "a", owner: "a", host: "h", held: 1e9, alert: 1e12, unlock: 2e12,
		backtrace: `/srv/app/my jobs/run#1.rb:118:in 'perform'
app/jobs/invoice_run.rb:64:in 'run'
/srv/app/../../etc/passwd.rb:1:in 'x'
/usr/local/bundle/gems/sidekiq-7.2.1/lib/sidekiq/processor.rb:202:in 'execute_job'
`})
	links := []stacktrace.SourceLink{source(t, "/srv/app/=https://git.example/app/blob/main/{file}#L{line}"),
		source(t, "app/=https://git.example/jobs/{file}?line={line}")}
	page := ok(t, s.dashboard(t, func(c *setup.Config) { c.Sources = links }), "/lock?name=a")
	var found []string
	for _, href := range attributes(page, "href") {
		if strings.HasPrefix(href, "https:") {
			found = append(found, href)
		}
	}
	want := []string{"https://git.example/app/blob/main/my%20jobs/run%231.rb#L118",
		"https://git.example/jobs/jobs/invoice_run.rb?line=64"}
	slices.Sort(found)
	if !slices.Equal(slices.Compact(found), want) {
		t.Errorf("the frames lead to %q, want %q", found, want)
	}
	if plain := ok(t, s.dashboard(t), "/lock?name=a"); strings.Contains(plain, "https://git") {
		t.Error("there are links that nobody configured")
	}
}

func TestSourceLinksThatCannotBeTrustedAreRefused(t *testing.T) {
	for _, bad := range []string{"", "/srv/=", "/srv/=https://a/", "/srv/=http://a/{file}", "/srv/=https://{file}/",
		"/srv/=https://a/{file}{host}", "/srv/=javascript:{file}", "https://u:p@a/{file}"} {
		if _, err := stacktrace.ParseSourceLink(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
