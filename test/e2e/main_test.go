// Package e2e runs the real binaries as real processes against a real etcd, breaks things and looks at what is left.
// What one room promises is tested there; here stands what only the whole can show.
//
// It needs nothing but Go: the binaries are built once per run, and etcd is this test binary once more.
package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// programs are the binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	proctest.Overlap()
	os.Exit(proctest.Main(m, &programs, "unlocker", "mutexdash", "mutexctl"))
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, programs.Command(t, name, args...))
}

// command runs a program to its end.
func command(t *testing.T, name string, args ...string) proctest.Result {
	t.Helper()
	return proctest.Run(t, programs.Command(t, name, args...))
}

// objects are the log lines of a program, one JSON object each. Whatever is written to the log, hostile text included,
// has to be one.
func objects(t *testing.T, p *proctest.Process) (all []map[string]any) {
	t.Helper()
	text := p.Output()
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("not a JSON object: %q", line)
		}
		all = append(all, object)
	}
	return all
}

// warning is the min-warning that the unlockers of these tests run with, and skew their clock-skew.
const (
	warning = 1500 * time.Millisecond
	skew    = 500 * time.Millisecond
)

// unlocker is a running unlocker with the address of its metrics and probes.
type unlocker struct {
	*proctest.Process
	addr string
}

// startUnlocker runs an unlocker that removes locks, with short times, and returns when it listens.
func startUnlocker(t *testing.T, endpoints []string, more ...string) *unlocker {
	t.Helper()
	addr := proctest.FreeAddr(t)
	u := &unlocker{addr: addr, Process: start(t, "unlocker", append([]string{
		"--policy=auto-unlock", "--sweep.min-warning=" + warning.String(), "--sweep.clock-skew=" + skew.String(),
		"--etcd.endpoints=" + strings.Join(endpoints, ","), "--web.listen-address=" + addr, "--web.shutdown-delay=0s",
	}, more...)...)}
	answers(t, addr, "/livez", 200)
	return u
}

// ready waits until the unlocker has read the locks.
func (u *unlocker) ready(t *testing.T) *unlocker {
	t.Helper()
	answers(t, u.addr, "/readyz", 200)
	return u
}

// audited are the reasons of the audit lines with this result, by uuid.
func (u *unlocker) audited(t *testing.T, result string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, o := range objects(t, u.Process) {
		if o["result"] == result {
			id, _ := o["uuid"].(string)
			reason, _ := o["reason"].(string)
			all[id] = append(all[id], reason)
		}
	}
	return all
}

// answers waits until a path answers with this status and a body that has these texts.
func answers(t *testing.T, addr, path string, status int, texts ...string) (body string) {
	t.Helper()
	return proctest.Answers(t, "http://"+addr+path, status, texts...)
}

// shows waits until a scrape has this value.
func shows(t *testing.T, addr string, want float64, sample string) {
	t.Helper()
	proctest.Eventually(t, sample, func() error {
		got, err := proctest.Metric(addr, sample)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %v, want %v", sample, got, want)
		}
		return err
	})
}

// hides waits until no scrape has such a series.
func hides(t *testing.T, addr, series string) {
	t.Helper()
	etcdtest.Eventually(t, "the end of "+series, func() bool {
		return !strings.Contains(answers(t, addr, "/metrics", http.StatusOK), "\n"+series)
	})
}

// prefix is where the locks lie. The keys below are written out by hand: this is how the protocol looks from a shell.
const prefix = "/mutexes/"

// write puts keys, as `etcdctl put` does.
func write(t *testing.T, c *clientv3.Client, all map[string]string) {
	t.Helper()
	// what is older than the uuid of its record is left over from an earlier one
	for _, uuids := range []bool{true, false} {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if strings.HasSuffix(key, "/uuid") == uuids {
				etcdtest.Put(t, c, key, all[key])
			}
		}
	}
}

// stored returns all keys below a prefix.
func stored(t *testing.T, c *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	r, err := c.Get(t.Context(), prefix, clientv3.WithPrefix())
	proctest.Must(t, err)
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// exists reports whether the record of a lock is there. segment is the lock's name as it stands in the key.
func exists(t *testing.T, c *clientv3.Client, segment string) bool {
	t.Helper()
	return etcdtest.Count(t, c, prefix+segment+"/uuid") > 0
}

// gone waits until nothing is left of a lock's record.
func gone(t *testing.T, c *clientv3.Client, segment string) {
	t.Helper()
	etcdtest.Eventually(t, "the removal of "+segment, func() bool { return !exists(t, c, segment) })
}

// endings are the history entries by uuid.
func endings(t *testing.T, c *clientv3.Client) map[string]metadata.Ending {
	t.Helper()
	all := map[string]metadata.Ending{}
	for key, value := range stored(t, c, prefix+".history/") {
		ending, err := protocol.Unmarshal[metadata.Ending]([]byte(value))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		all[strings.TrimPrefix(key, prefix+".history/")] = ending
	}
	return all
}
