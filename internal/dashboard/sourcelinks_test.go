package dashboard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
)

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
