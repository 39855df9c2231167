package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// forbidden are the constructs by which text from outside becomes markup or script. Two holes of well-known dashboards
// in 2026 were an innerHTML in a tooltip.
var forbidden = map[string]*regexp.Regexp{
	".go": regexp.MustCompile(`template\.(HTML|JS|JSStr|URL|CSS|HTMLAttr|Srcset)\b|"text/template"|` +
		`AddInsecureBypassPattern|Access-Control-`),
	".js": regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|` +
		`\beval\b|new Function|setAttribute\("on|\.on(click|load|error)\s*=|\.style\b|import\((?:[^"]|"[^.]|"\.[^/])`),
	".html": regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+=|javascript:|https?://|//[a-z]|` +
		`<iframe|<base|http-equiv|<script[^>]*>[^<]`),
	".css": regexp.MustCompile(`@import|url\(|expression\(`),
}

func TestSourcesHaveNoForbiddenConstruct(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
		"views.js": "views"} {
		sum[part] += get(d, "/assets/"+fingerprint(t, d)+"/"+name, "Accept-Encoding", "gzip").Body.Len()
	}
	if both := sum["scripts"] + sum["styles"]; both > 14_000 {
		t.Errorf("scripts have %d and styles %d bytes packed, in all %d; the budget is 14,000", sum["scripts"],
			sum["styles"], both)
	}
	// Saved views and notifications have a file and a budget of their own: only those who open the menu, or asked for
	// notifications, load it.
	if sum["views"] > 2_500 {
		t.Errorf("the script of saved views has %d bytes packed; the budget is 2,500", sum["views"])
	}
}

func TestAssetsArePackedAndForEver(t *testing.T) {
	d := busy().dashboard(t)
	path := "/assets/" + fingerprint(t, d) + "/app.js"
	plain := get(d, path)
	packed := get(d, path, "Accept-Encoding", "br, gzip;q=0.8")
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
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
