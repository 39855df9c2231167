package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

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
