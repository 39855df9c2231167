// Package opsdocs keeps what operators read and install true to the programs: docs/metrics.md, which `make docs` writes
// from a scrape of real daemons; the alert rules, their sections in docs/runbooks.md, and the dashboards, which may
// only speak of metrics that exist.
package opsdocs

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

var update = flag.Bool("update", false, "write docs/metrics.md")

const top = "../../../"

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(top + file)
	proctest.Must(t, err)
	return string(b)
}

// families are the metrics of one program by name, without those of Go, the process and the library.
type families map[string]*dto.MetricFamily

// scrapes runs all daemons on an etcd where everything happens that has a metric, and returns their last scrapes.
func scrapes(t *testing.T) map[string]families {
	t.Helper()
	etcd := etcdtest.Start(t, etcdtest.ClientCerts())
	client := etcd.Client(t)
	cert, key := etcd.CA().Issue(t, "program")
	secure := []string{"--etcd.endpoints=" + etcd.Endpoint(), "--etcd.cacert=" + etcd.CA().File(),
		"--etcd.cert=" + cert, "--etcd.key=" + key, "--web.config.file=" + webConfig(t, cert, key)}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: etcd.ClientTLS(t, "browser")}}
	unlockerAddress := proctest.FreeAddr(t)
	pages := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	witness := proctest.FreeAddr(t)
	kubeconfig, err := kubetest.WriteKubeconfig(t.TempDir(), "http://127.0.0.1:1") // of no API server
	proctest.Must(t, err)
	program := unlocker.Command()
	run(t, program, slices.Concat(secure, switchedOn(program.Flags()), []string{"--policy=auto-unlock",
		"--metrics.lock-series=all", "--sweep.min-warning=250ms", "--sweep.clock-skew=0s", "--sweep.exclude=abandoned",
		"--etcd-locks=theirs", "--dashboard.url=https://locks.example.org",
		"--kubernetes.pods", "--kubernetes.kubeconfig=" + kubeconfig, "--web.listen-address=" + unlockerAddress})...)
	run(t, mutexdash.Command(), append(secure, "--web.listen-address="+pages, "--web.ops-address="+ops)...)
	run(t, unlocker.Command(), append([]string{"witness", "--web.listen-address=" + witness}, secure...)...)
	l := protocol.DefaultLayout()
	cycle(t, client, l)
	hold(t, client, l, "dead", "00000000-0000-4000-8000-000000000003", -2*time.Second, -time.Second)
	hold(t, client, l, "of a clock that is ahead", "00000000-0000-4000-8000-000000000004", 24*time.Hour, 25*time.Hour)
	hold(t, client, l, "abandoned", "00000000-0000-4000-8000-000000000005", time.Hour, 2*time.Hour,
		clientv3.OpPut(l.Field("abandoned", lockrecord.FieldAlive), metadata.FormatTime(time.Now())))
	death(t, client, l, "abandoned")
	acknowledge(t, client, l, "abandoned")
	lease, err := client.Grant(t.Context(), 3600)
	proctest.Must(t, err)
	_, err = client.Put(t.Context(), "theirs", "", clientv3.WithLease(lease.ID))
	proctest.Must(t, err)
	unclaimed := unclaimedLock(t)
	got := map[string]families{}
	for began := time.Now(); ; time.Sleep(250 * time.Millisecond) {
		if resp, err := browser.Get("https://" + pages + "/"); err == nil {
			resp.Body.Close()
		}
		const waited = "00000000-0000-4000-8000-000000000007"
		ticket := fmt.Sprintf(`{"uuid":%q,"since":%q`, waited, metadata.FormatTime(time.Now()))
		put(t, client, l.Ticket("released", waited), ticket+"}")
		hold(t, client, l, "released", waited, time.Hour, 2*time.Hour,
			clientv3.OpPut(l.Ticket("released", waited), ticket+`,"holding":true}`))
		_, err := client.Delete(t.Context(), l.Ticket("released", waited))
		proctest.Must(t, err)
		_, err = client.Delete(t.Context(), l.Record("released"), clientv3.WithPrefix())
		proctest.Must(t, err)
		got["unlocker"] = scrape(t, browser, "https://"+unlockerAddress, "unlocker_")
		got["unlocker"][unclaimedSince] = unclaimed
		got["mutexdash"] = scrape(t, browser, "http://"+ops, "mutexdash_")
		got["witness"] = scrape(t, browser, "https://"+witness, "unlocker_witness_")
		missing := missing(t, got)
		if len(missing) == 0 {
			return got
		}
		if time.Since(began) > 30*time.Second { // ten times as long as usual
			t.Fatalf("not exported: switch them on in scrapes(), or remove them from %s: %q", metricsPage, missing)
		}
	}
}

// switchedOn sets every number and duration that is off, which is 0, by default: what shows a metric must not be
// forgotten here. Those of the sweep show none.
func switchedOn(fs *pflag.FlagSet) (args []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		least := map[string]string{"0": "1", "0s": "1ns"}[f.DefValue]
		if least != "" && !strings.HasPrefix(f.Name, "sweep.") {
			args = append(args, "--"+f.Name+"="+least)
		}
	})
	return args
}

// webConfig serves pages and metrics with this certificate, in a directory with it.
func webConfig(t *testing.T, cert, key string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(cert), "web.yml")
	text := fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}\n", filepath.Base(cert), filepath.Base(key))
	proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// missing are the metrics of the page that a program does not show yet.
func missing(t *testing.T, got map[string]families) (names []string) {
	t.Helper()
	for name := range known(t) {
		program, _, _ := strings.Cut(name, "_")
		if strings.HasPrefix(name, "unlocker_witness_") {
			program = "witness"
		}
		if got[program][name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// acknowledge says that somebody looks at a lock.
func acknowledge(t *testing.T, client *clientv3.Client, l protocol.Layout, lock string) {
	t.Helper()
	store := lockstore.New(client, l)
	held, _, err := store.ReadRecord(t.Context(), lock)
	if err == nil {
		_, err = store.Perform(t.Context(), protocol.VerbAcknowledge, protocol.ActionTarget{Hold: &held.Record},
			protocol.Action{ID: "1", Actor: "ann", Source: "cli", At: metadata.Time{Time: time.Now()}, Seconds: 3600})
	}
	proctest.Must(t, err)
}

// cycle writes two overdue holders that wait for each other.
func cycle(t *testing.T, c *clientv3.Client, l protocol.Layout) {
	t.Helper()
	lease, err := c.Grant(t.Context(), 600)
	proctest.Must(t, err)
	uuids := [2]string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}
	for i, lock := range []string{"left", "right"} {
		hold(t, c, l, lock, uuids[i], -time.Minute, time.Hour)
		ticket := metadata.Ticket{UUID: "00000000-0000-4000-8000-00000000001" + fmt.Sprint(i),
			Identity: metadata.Identity{Owner: "billing-" + fmt.Sprint(1-i), Hostname: "host", PID: int64(8 - i)},
			Since:    metadata.Time{Time: time.Now()}}
		put(t, c, l.Ticket(lock, ticket.UUID), protocol.Marshal(ticket), clientv3.WithLease(lease.ID))
	}
}

// death states that the holder of the lock has ended.
func death(t *testing.T, c *clientv3.Client, l protocol.Layout, lock string) {
	t.Helper()
	resp, err := c.Get(t.Context(), l.Field(lock, lockrecord.FieldUUID))
	proctest.Must(t, err)
	kv := resp.Kvs[0]
	put(t, c, l.Death(string(kv.Value)), protocol.Marshal(metadata.Statement{Name: lock, UUID: string(kv.Value),
		Token: kv.CreateRevision, Cause: metadata.CauseProcessEnded, Witness: metadata.WitnessHost,
		At: metadata.Time{Time: time.Now()}}))
}

func hold(t *testing.T, c *clientv3.Client, l protocol.Layout, lock, uuid string, alert, unlock time.Duration,
	more ...clientv3.Op) {
	t.Helper()
	i := map[string]int{"right": 1}[lock]
	now := time.Now()
	d := lockrecord.Draft{
		UUID: uuid,
		Identity: metadata.Identity{Owner: "billing-" + fmt.Sprint(i), Hostname: "host", PID: int64(7 + i),
			Purpose: "invoices"},
		LockedAt: now.Add(min(alert, unlock) - time.Second), AlertAt: now.Add(alert), AutoUnlockAt: now.Add(unlock),
	}
	fields, err := d.Fields()
	proctest.Must(t, err)
	var puts []clientv3.Op
	for _, f := range fields {
		puts = append(puts, clientv3.OpPut(l.Field(lock, f.Name), f.Value))
	}
	_, err = c.Txn(t.Context()).Then(append(puts, more...)...).Commit()
	proctest.Must(t, err)
}

func put(t *testing.T, c *clientv3.Client, key, value string, opts ...clientv3.OpOption) {
	t.Helper()
	_, err := c.Put(t.Context(), key, value, opts...)
	proctest.Must(t, err)
}

// run runs a program until the test ends, and expects it to exit cleanly.
func run(t *testing.T, cmd *cobra.Command, args ...string) {
	t.Helper()
	args = append(args, "--web.shutdown-delay=0s", "--log.level=error")
	proctest.Go(t, func(ctx context.Context) error {
		return flags.Execute(ctx, flags.WithoutEnvironment(cmd), args)
	})
}

func scrape(t *testing.T, browser *http.Client, url, prefix string) families {
	t.Helper()
	resp, err := browser.Get(url + "/metrics")
	if err != nil {
		return families{}
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	proctest.Must(t, err)
	for name := range all {
		if !strings.HasPrefix(name, prefix) {
			delete(all, name)
		}
	}
	return all
}

// unclaimedSince is a metric that an unlocker has only after half a minute.
const unclaimedSince = "unlocker_lock_unclaimed_since_timestamp_seconds"

// unclaimedLock is that metric, from the collector of the unlocker alone.
func unclaimedLock(t *testing.T) *dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(lockmetrics.New(lockmetrics.Config{
		Snapshots: locks.NewSnapshots(locks.Source{Unclaimed: func() []diagnosis.Unclaimed {
			return []diagnosis.Unclaimed{{Name: "nobody takes it", Since: time.Now()}}
		}}),
		Fresh:         func() protocol.Freshness { return protocol.Freshness{Synced: true, HeardAt: time.Now()} },
		Disagreements: func() int { return 0 },
		Series:        lockmetrics.SeriesAll, SeriesLimit: 1,
	}))
	all, err := registry.Gather()
	proctest.Must(t, err)
	i := slices.IndexFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == unclaimedSince })
	if i < 0 {
		t.Fatalf("the collector has no %s", unclaimedSince)
	}
	return all[i]
}
