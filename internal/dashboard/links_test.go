package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestConfiguredLinksAreStable(t *testing.T) {
	link, err := app.ParseLink("logs=https://logs.example/{owner}?host={host}&q={name}+{pid}#{hold}")
	proctest.Must(t, err)
	s := infested()
	d := s.dashboard(t, func(c *app.Config) { c.Links = []app.Link{link} })
	for _, name := range hostile() {
		if len(name) > 4000 || strings.ContainsAny(name, "\xff\xe2") {
			continue
		}
		for _, href := range attributes(ok(t, d, "/lock?name="+url.QueryEscape(name)), "href") {
			if u, err := url.Parse(href); strings.HasPrefix(href, "https:") && !strings.HasPrefix(href, runbooks) &&
				(err != nil || u.Host != "logs.example" || u.Query().Get("host") != name ||
					strings.Count(u.EscapedPath(), "/") != 1) {
				t.Errorf("%.40q: the link leads to %s", name, href)
			}
		}
	}
	page := ok(t, busy().dashboard(t, func(c *app.Config) { c.Links = []app.Link{link} }), "/lock?name="+stuck)
	want := `<a href="https://logs.example/billing?host=billing-7f9c&amp;q=billing%2Finvoice-run&#43;17#` +
		uuid(stuck) + `" rel="noopener noreferrer" target="_blank">logs</a>`
	if !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "&#43;", "+")) {
		t.Errorf("the page has no %s", want)
	}
}

func TestUntrustedLinksAreRefused(t *testing.T) {
	for _, bad := range []string{"", "logs", "=https://a/", "logs=http://a/", "logs=javascript:alert(1)",
		"logs=https://{host}/", "logs=https://a.{owner}.example/", "logs=https://u:p@a/",
		"logs=https:///{name}", "logs=https://a/{nam}", "logs=https://a/{name", "logs=https://a/name}", "logs={name}",
		"logs=//a/{name}", "logs=https://a?{}", "logs=https://a/b/../{name}", "logs=https://a/./{name}",
		"logs=https://a/%2e%2E/{name}"} {
		if _, err := app.ParseLink(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestTraceLinkAppearsIfTheRecordHasATrace(t *testing.T) {
	link, err := app.ParseLink("trace=https://traces.example/{trace}?span={span}")
	proctest.Must(t, err)
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
		if got := link.URL(&locks.Row{Record: &r}); got != test.want {
			t.Errorf("%q, %q: the link leads to %q, want %q", test.trace, test.span, got, test.want)
		}
	}
	if got := link.URL(&locks.Row{Record: &metadata.Record{}}); got != "" {
		t.Errorf("without a trace: %q", got)
	}
}

func TestOwnFramesLinkToTheirSource(t *testing.T) {
	s := newScene()
	s.add(hold{name: "a", owner: "a", host: "h", held: 1e9, alert: 1e12, unlock: 2e12,
		backtrace: `/srv/app/my jobs/run#1.rb:118:in 'perform'
app/jobs/invoice_run.rb:64:in 'run'
/srv/app/../../etc/passwd.rb:1:in 'x'
/usr/local/bundle/gems/sidekiq-7.2.1/lib/sidekiq/processor.rb:202:in 'execute_job'
`})
	var links []stacktrace.SourceLink
	for _, text := range []string{"/srv/app/=https://git.example/app/blob/main/{file}#L{line}",
		"app/=https://git.example/jobs/{file}?line={line}"} {
		link, err := stacktrace.ParseSourceLink(text)
		proctest.Must(t, err)
		links = append(links, link)
	}
	page := ok(t, s.dashboard(t, func(c *app.Config) { c.Sources = links }), "/lock?name=a")
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
		t.Error("found links that were not configured")
	}
}

func TestUntrustedSourceLinksAreRefused(t *testing.T) {
	for _, bad := range []string{"", "/srv/=", "/srv/=https://a/", "/srv/=http://a/{file}", "/srv/=https://{file}/",
		"/srv/=https://a/{file}{host}", "/srv/=javascript:{file}", "https://u:p@a/{file}"} {
		if _, err := stacktrace.ParseSourceLink(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// forbidden are constructs by which untrusted text becomes markup or script. Two vulnerabilities of well-known
// dashboards in 2026 were an innerHTML in a tooltip.
var forbidden = map[string]*regexp.Regexp{
	".go": regexp.MustCompile(`template\.(HTML|JS|JSStr|URL|CSS|HTMLAttr|Srcset)\b|"text/template"|` +
		`AddInsecureBypassPattern|Access-Control-`),
	".js": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|` +
		`\beval\b|new Function|setAttribute\("on|\.on(click|load|error)\s*=|\.style\b|import\((?:[^"]|"[^.]|"\.[^/])|` +
		`["'\x60]/[a-z?]`), // the last is an address that leaves the prefix of a proxy
	".html": regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+=|javascript:|https?://|//[a-z]|` +
		`<iframe|<base|http-equiv|<script[^>]*>[^<]`),
	".css": regexp.MustCompile(`@import|url\(|expression\(`),
}

func TestSourcesHaveNoForbiddenConstructs(t *testing.T) {
	seen := map[string]int{}
	for _, root := range []string{".", "../../web"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Name() == "testdata" {
				return filepath.SkipDir
			}
			if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if pattern := forbidden[filepath.Ext(path)]; pattern != nil {
				seen[filepath.Ext(path)]++
				if found := pattern.Find(text); found != nil {
					t.Errorf("%s has %q", path, found)
				}
			}
			return err
		})
		proctest.Must(t, err)
	}
	if len(seen) != len(forbidden) {
		t.Errorf("only %v were looked at", seen)
	}
}

// size is the length of b when compressed for the wire.
func size(t *testing.T, b []byte) int {
	t.Helper()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	proctest.Must(t, err)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	z.Close()
	return packed.Len()
}

func TestPageAndFilesStayWithinTheirBudget(t *testing.T) {
	s := newScene()
	for i := range 100 {
		alert := time.Duration(i-5) * time.Minute // five of them alert, and show what for
		s.add(hold{name: fmt.Sprintf("catalog/sync/tenant-%d", i*7919), owner: fmt.Sprintf("catalog-%d", i%9),
			host:    fmt.Sprintf("catalog-7f9c6d5b8-%d", i*104729),
			purpose: "full sync of the catalogue", held: time.Hour, alert: alert, unlock: 2*time.Hour + alert})
	}
	page := []byte(ok(t, s.dashboard(t), "/"))
	if plain, packed := len(page), size(t, page); plain > 93_000 || packed > 12_000 {
		t.Errorf("a list of 100 locks has %d bytes, %d packed; the budget is 93,000 and 12,000", plain, packed)
	}
	d := s.dashboard(t)
	sum := map[string]int{}
	for name, part := range map[string]string{"app.js": "scripts", "theme.js": "scripts", "app.css": "styles",
		"forms.js": "forms"} {
		sum[part] += get(d, "/assets/"+fingerprint(t, d)+"/"+name, "Accept-Encoding", "gzip").Body.Len()
	}
	if both := sum["scripts"] + sum["styles"]; both > 14_000 {
		t.Errorf("scripts have %d and styles %d bytes packed, in all %d; the budget is 14,000", sum["scripts"],
			sum["styles"], both)
	}
	// Only pages with a form load this script.
	if sum["forms"] > 500 {
		t.Errorf("the script of forms has %d bytes packed; the budget is 500", sum["forms"])
	}
}

func TestAssetsAreCompressedAndImmutable(t *testing.T) {
	d := busy().dashboard(t)
	path := "/assets/" + fingerprint(t, d) + "/app.js"
	plain := get(d, path)
	packed := get(d, path, "Accept-Encoding", "br, gzip;q=0.8")
	z, err := gzip.NewReader(packed.Body)
	proctest.Must(t, err)
	unpacked, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(unpacked, plain.Body.Bytes()) {
		t.Errorf("packed and plain differ: %v", err)
	}
	if packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" ||
		packed.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("the headers are %v", packed.Header())
	}
	if refused := get(d, path, "Accept-Encoding", "gzip;q=0"); refused.Header().Get("Content-Encoding") != "" {
		t.Error("packed for a reader that refuses it")
	}
}
