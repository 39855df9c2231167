//go:build kube

package kube

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Every tenth of many pods holds a lock. It says what watching them costs, and how soon the death of a holder is known.
func TestManyPods(t *testing.T) {
	c := startCluster(t)
	c.namespace(t, "many")
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.AdminToken))
	w.shows(t, "unlocker_kubernetes_synced 1")
	idle := w.resident(t)
	pods := make([]*pod, *manyPods)
	began := time.Now()
	each(t, len(pods), func(i int) {
		pods[i] = podOf(t, c, "many", fmt.Sprintf("worker-%05d", i), "Never", "worker", "proxy")
	})
	made := time.Since(began)
	w.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", len(pods)))
	watched := w.resident(t)
	cpu := w.processor(t)
	t.Logf("%d pods were made in %v, %.0f changes a second: the unlocker took %v of a processor, and its memory grew "+
		"from %d to %d MiB", len(pods), made, 2*float64(len(pods))/made.Seconds(), cpu, idle>>20, watched>>20)

	holds := make([]*hold, len(pods)/10)
	each(t, len(holds), func(i int) { holds[i] = w.lock(t, pods[i*10].Name, pods[i*10].by("worker"), ago) })
	w.shows(t, fmt.Sprintf("unlocker_locks{state=\"held\"} %d", len(holds)))

	began = time.Now()
	fresh := startAgain(t, w)
	fresh.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", len(pods)))
	t.Logf("another unlocker knew all pods %v after its start, with %d MiB, and %v of a processor", time.Since(began),
		fresh.resident(t)>>20, fresh.processor(t))

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

// startAgain starts a second unlocker for the same locks.
func startAgain(t *testing.T, w *world) *world {
	t.Helper()
	return startUnlocker(t, w.cluster, w.kubeconfig(t, w.Address, kubetest.AdminToken))
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

// resident returns the unlocker's resident memory in bytes.
func (w *world) resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.unlocker.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// processor returns the unlocker's CPU time.
func (w *world) processor(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.unlocker.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, numbers, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(numbers)
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // a hundred a second
}
