//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	proctest.Must(t, os.WriteFile(path, []byte(file), 0o600))
	stages[0].start("mutexdash", "--clusters="+path, "--web.listen-address="+address, "--web.ops-address="+ops,
		"--web.shutdown-delay=0s")
	proctest.Answers(t, "http://"+ops+"/readyz", http.StatusOK)
	for i, s := range stages {
		s.ops = ops
		s.sample = fmt.Sprintf("mutexdash_etcd_revision{cluster=%q}", []string{"prod-eu", "prod-us", "staging"}[i])
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
