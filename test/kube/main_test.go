//go:build kube

// Package kube runs the unlocker beside a real API server of Kubernetes, and installs the chart there with helm. There
// is no kubelet and no controller: the tests patch the status of pods as a kubelet would, and ask for pods as a
// controller would. `make kube` builds the API server and helm first.
package kube

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Every tenth of many pods holds a lock. An unlocker that starts beside them knows them all, as the one that saw them
// come, and of those that hold locks only the dead are dead.
func TestManyPods(t *testing.T) {
	const many = 500
	c := startCluster(t)
	c.namespace(t, "many")
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.AdminToken))
	w.shows(t, "unlocker_kubernetes_synced 1")
	pods := make([]*pod, many)
	each(t, many, func(i int) {
		pods[i] = podOf(t, c, "many", fmt.Sprintf("worker-%05d", i), "Never", "worker", "proxy")
	})
	w.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", many))
	holds := make([]*hold, many/10)
	each(t, len(holds), func(i int) { holds[i] = w.lock(t, pods[i*10].Name, pods[i*10].by("worker")) })
	w.shows(t, fmt.Sprintf("unlocker_locks{state=\"held\"} %d", len(holds)))
	fresh := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.AdminToken))
	fresh.shows(t, fmt.Sprintf("unlocker_kubernetes_pods %d", many))
	for i, h := range holds[:len(holds)/2] {
		p := pods[i*10]
		p.over(t, "Failed", "PodFailed", p.Ended("worker", "1"), p.Ended("proxy", "1"))
		h.proven(t, metadata.CausePodEnded)
	}
	for _, h := range holds[len(holds)/2:] {
		h.unsuspected(t)
	}
}

// each does something n times, eight at a time.
func each(t *testing.T, n int, do func(i int)) {
	t.Helper()
	var group sync.WaitGroup
	const lanes = 8
	for lane := range lanes {
		group.Go(func() {
			for i := lane; i < n; i += lanes {
				do(i)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

var apiServer = flag.String("kube-apiserver", "", "path of the API server: make kube")

// programs are our binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	flag.Parse()
	etcdtest.Member()
	os.Exit(proctest.Main(m, &programs, "unlocker"))
}
