//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// newStages starts three etcds and one mutexdash that shows them. The night is that of the first one.
func newStages(t testing.TB) (url string, stages []*stage) {
	t.Helper()
	layout := protocol.DefaultLayout()
	file := "clusters:\n"
	address := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	url = "http://" + address + "/"
	for _, c := range []string{"name: prod-eu, label: Production EU, colour: magenta",
		"name: prod-us, label: Production US, colour: indigo", "name: staging, colour: green"} {
		s := &stage{t: t, etcd: etcdtest.Start(t), layout: layout, url: url}
		s.client = s.etcd.Client(t)
		file += fmt.Sprintf("  - {%s, endpoints: [%q]}\n", c, s.etcd.Endpoint())
		stages = append(stages, s)
	}
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	stages[0].start("mutexdash", "--clusters="+path, "--web.listen-address="+address, "--web.ops-address="+ops,
		"--web.shutdown-delay=0s")
	proctest.Answers(t, "http://"+ops+"/readyz", http.StatusOK)
	for i, s := range stages {
		s.status = url + "c/" + []string{"prod-eu", "prod-us", "staging"}[i] + "/api/v1/status"
	}
	stages[0].night()
	for _, s := range stages[1:] {
		s.hold(lock{name: "billing/invoice-run", owner: "billing", host: "billing-5d9f7c6b8-k2x4p",
			purpose: "elsewhere", held: 6 * time.Minute, alert: 20 * time.Minute, unlock: time.Hour, alive: "12 of 90"})
	}
	stages[1].hold(lock{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p",
		purpose: "settles the orders of the day", held: 40 * time.Minute, alert: -20 * time.Minute,
		unlock: 4 * time.Minute})
	for i := range 9 {
		stages[1].wait("orders/settle", "checkout", fmt.Sprintf("checkout-%d", i), "next", time.Duration(i)*time.Minute)
	}
	for _, s := range stages {
		s.unlocker("alert-only")
	}
	return url, stages
}

func TestOneOfThreeClustersLeavesThePage(t *testing.T) {
	t.Parallel()
	url, stages := newStages(t)
	us := stages[1]
	b := newTab(t, stages...)
	b.open(url)
	b.until("three clusters", `document.querySelectorAll(".clusters .live").length === 3
		&& document.querySelectorAll(".locks tbody").length > 12`)
	us.etcd.Stop()
	b.until("that it is away",
		`document.querySelector(".verdict").textContent.includes("etcd of Production US has not")`,
		2*time.Minute)
	if away := ask[int](b, `document.querySelectorAll("tbody.away").length`); away != 2 {
		t.Errorf("%d rows are grey, want 2", away)
	}
	b.until("live, as two clusters are there", `document.body.className === "live"`)
	if chip := ask[string](b, `document.querySelector(".cluster.stale").textContent`); !strings.Contains(chip,
		"Production US away since ") {
		t.Errorf("the chip says %q", chip)
	}
	stages[2].hold(lock{name: "aaa/new", owner: "qa", host: "qa-1", held: time.Second, alert: -time.Second,
		unlock: time.Hour})
	b.until("a new lock elsewhere", `[...document.querySelectorAll(".name")].some((a) => a.href.includes("aaa/new"))`)
	b.picture("clusters")
	b.size(1280, 800)
	b.open(url)
	us.etcd.Restart(t)
	b.until("all again", `document.querySelectorAll(".clusters .live").length === 3
		&& !document.querySelector("tbody.away, #alerts .banner")`, 2*time.Minute)
}
