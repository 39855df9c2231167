//go:build boards

package alerts

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var (
	bundle = flag.String("bundle", "", "`file` with test/alerts/boards, as one script: make boards")
	during = flag.Duration("during", 4*time.Minute, "how long the demo is watched before the pictures are taken")
)

// TestPicturesOfTheDashboards shows deploy/grafana with the demo's locks: the panels are those of Grafana's libraries,
// the numbers those that a real Prometheus scraped from real programs.
func TestPicturesOfTheDashboards(t *testing.T) {
	if *bundle == "" || *pictures == "" {
		t.Fatal("run this by make boards")
	}
	proctest.Must(t, programs.Go("build", "-o", programs.Dir, "./cmd/mutexdev"))
	demo := watchedDemo(t)
	time.Sleep(*during)
	for name, p := range map[string]part{
		"locks": {"locks", 0, 31}, "by-lock": {"locks", 32, 66}, "unlocker": {"unlocker", 0, 28},
	} {
		shot, err := drawn(t, page(t, p, demo))
		if err == nil {
			err = os.WriteFile(filepath.Join(*pictures, "grafana-"+name+".png"), shot, 0o644)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// part is the rows of a dashboard that a picture shows.
type part struct {
	board       string
	first, last int
}

// watchedDemo is a Prometheus that scrapes a demo with the labels that a cluster would give it.
func watchedDemo(t *testing.T) (url string) {
	t.Helper()
	etcd := proctest.FreeAddr(t)
	unlocker := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	proctest.Start(t, programs.Command(t, "mutexdev", "--speed=2", "--etcd.listen-address="+etcd,
		"--unlocker.listen-address="+unlocker, "--web.listen-address="+proctest.FreeAddr(t)))
	proctest.Start(t, programs.Command(t, "mutexdash", "--etcd.endpoints="+etcd,
		"--web.listen-address="+proctest.FreeAddr(t), "--web.ops-address="+ops))
	config := fmt.Sprintf(`
global: {scrape_interval: 4s, scrape_timeout: 4s} # less would leave gaps on a busy machine
scrape_configs:
  - {job_name: unlocker, static_configs: [{targets: [%q], labels: {cluster: eu, namespace: locking}}]}
  - {job_name: mutexdash, static_configs: [{targets: [%q], labels: {cluster: eu, namespace: locking}}]}
`, unlocker, ops)
	return prometheus(t, config)
}

// page serves some rows of a dashboard.
func page(t *testing.T, shown part, prometheus string) (url string) {
	t.Helper()
	var board struct {
		Panels []json.RawMessage `json:"panels"`
	}
	proctest.Must(t, json.Unmarshal([]byte(read(t, "deploy/grafana/"+shown.board+".json")), &board))
	some := board.Panels[:0]
	for _, raw := range board.Panels {
		var p struct{ GridPos struct{ Y int } }
		proctest.Must(t, json.Unmarshal(raw, &p))
		if p.GridPos.Y >= shown.first && p.GridPos.Y < shown.last {
			some = append(some, raw)
		}
	}
	board.Panels = some
	picture, err := json.Marshal(map[string]any{"board": board, "prometheus": prometheus,
		"seconds": int(during.Seconds()) - 10, "width": 1400})
	proctest.Must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="board.css">`+
			`<body style="margin: 0"><div id="board"></div>`+
			`<script>window.picture = %s</script><script src="board.js"></script>`, picture)
	})
	mux.Handle("GET /", http.FileServer(http.Dir(filepath.Dir(*bundle))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// drawn is the picture of a page that says when it is complete.
func drawn(t *testing.T, url string) (shot []byte, err error) {
	t.Helper()
	tab, end := browser(t, 1400, 900)
	defer end()
	if err := chromedp.Do(tab, chromedp.Navigate(url)); err != nil {
		return nil, err
	}
	said := ""
	for said == "" && tab.Err() == nil {
		if said, err = chromedp.Run(tab, chromedp.Evaluate[string](`window.drawn ?? ""`)); err != nil {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	if said != "yes" {
		return nil, fmt.Errorf("the page says %s (%w)", strings.TrimSpace(said), context.Cause(tab))
	}
	return chromedp.Run(tab, chromedp.FullScreenshot(100))
}
