//go:build kube

package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Every tenth of many pods holds a lock. It says what watching them costs, and how soon the death of a holder is known.
func TestManyPods(t *testing.T) {
	c := startCluster(t)
	c.namespace(t, "many")
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.AdminToken))
	w.shows(t, "unlocker_kubernetes_synced 1")
	idle := w.cost(t)
	pods := make([]*pod, *manyPods)
	began := time.Now()
	each(t, len(pods), func(i int) {
		pods[i] = podOf(t, c, "many", fmt.Sprintf("worker-%05d", i), "Never", "worker", "proxy")
	})
	made := time.Since(began)
	w.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", len(pods)))
	t.Logf("%d pods were made in %v, %.0f changes a second: the unlocker had %s, and then %s", len(pods), made,
		2*float64(len(pods))/made.Seconds(), idle, w.cost(t))

	holds := make([]*hold, len(pods)/10)
	each(t, len(holds), func(i int) { holds[i] = w.lock(t, pods[i*10].Name, pods[i*10].by("worker"), ago) })
	w.shows(t, fmt.Sprintf("unlocker_locks{state=\"held\"} %d", len(holds)))

	began = time.Now()
	fresh := startUnlocker(t, w.cluster, w.kubeconfig(t, w.Address, kubetest.AdminToken))
	fresh.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", len(pods)))
	t.Logf("another unlocker knew all pods %v after its start, with %s", time.Since(began), fresh.cost(t))

	var after []time.Duration
	for i, h := range holds[:min(len(holds), 50)] {
		p := pods[i*10]
		p.over(t, "Failed", "PodFailed", p.Ended("worker", "1"), p.Ended("proxy", "1"))
		told := time.Now()
		h.proven(t, metadata.CausePodEnded)
		after = append(after, time.Since(told))
	}
	slices.Sort(after)
	t.Logf("a death is stated after %v in the middle, %v at most", after[len(after)/2], after[len(after)-1])
	for _, h := range holds[min(len(holds), 50):] {
		h.unsuspected(t)
	}
}

// each does something n times, eight at a time.
func each(t *testing.T, n int, do func(i int)) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// metric reads one of the unlocker's metrics.
func (w *world) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	_, metrics, err := proctest.Get(http.DefaultClient, w.url+"/metrics")
	_, rest, _ := strings.Cut(metrics, "\n"+name+" ")
	if _, scanErr := fmt.Sscan(rest, &value); err != nil || scanErr != nil {
		t.Fatalf("%s: %v, %v", name, err, scanErr)
	}
	return value
}

// cost is what the unlocker has and took.
func (w *world) cost(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%.0f MiB and %.1f s of a processor", w.metric(t, "process_resident_memory_bytes")/(1<<20),
		w.metric(t, "process_cpu_seconds_total"))
}
