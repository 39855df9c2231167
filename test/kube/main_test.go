//go:build kube

// Package kube runs the unlocker beside a real API server of Kubernetes, and installs the chart there with helm. There
// is no kubelet and no controller: the tests patch the status of pods as a kubelet would, and ask for pods as a
// controller would. `make kube` builds the API server and helm first.
package kube

import (
	"flag"
	"os"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var apiServer = flag.String("kube-apiserver", "", "path of the API server: make kube")

// programs are our binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	flag.Parse()
	etcdtest.Member()
	os.Exit(proctest.Main(m, &programs, "unlocker", "mutexctl"))
}
