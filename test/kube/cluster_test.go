//go:build kube

package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// object is anything in JSON.
type object = kubetest.Object

// cluster is an API server with an etcd.
type cluster struct {
	*kubetest.Server
	etcd *etcdtest.Server
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	if *apiServer == "" {
		t.Fatal("the API server is missing: make kube")
	}
	etcd := etcdtest.Start(t)
	server, err := kubetest.Launch(*apiServer, etcd.Endpoint(), proctest.FreeAddr(t), t.TempDir())
	proctest.Must(t, err)
	t.Cleanup(func() {
		server.Process.Kill()
		if t.Failed() {
			t.Logf("the API server:\n%s", server.Process.Output())
		}
	})
	proctest.Eventually(t, "the API server", server.Ready)
	proctest.Eventually(t, "the API server's own service, which it makes when it is ready", func() error {
		_, err := server.Ask("GET", "/api/v1/namespaces/default/services/kubernetes", nil)
		return err
	})
	return &cluster{server, etcd}
}

// kubeconfig writes a file for clients that reach the API server at an address and have a token.
func (c *cluster) kubeconfig(t *testing.T, address, token string) string {
	t.Helper()
	path, err := c.Kubeconfig(strings.ReplaceAll(t.Name(), "/", "-"), address, token)
	proctest.Must(t, err)
	return path
}

// ask is Ask where a refusal fails the test.
func (c *cluster) ask(t *testing.T, method, path string, body any) object {
	t.Helper()
	answer, err := c.Ask(method, path, body)
	proctest.Must(t, err)
	return answer
}

// namespace makes one with the service account that pods need.
func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	proctest.Must(t, c.MakeNamespace(name))
}

// pod is a pod in the API server, whose kubelet the test plays.
type pod struct{ *kubetest.Pod }

// podOf makes a pod whose containers have run for ten minutes.
func podOf(t *testing.T, c *cluster, namespace, name, restartPolicy string, containers ...string) *pod {
	t.Helper()
	p, err := c.MakePod(namespace, name, restartPolicy, 10*time.Minute, containers...)
	proctest.Must(t, err)
	return &pod{p}
}

// status patches the pod's status, as its kubelet does, or a controller.
func (p *pod) status(t *testing.T, status object) {
	t.Helper()
	proctest.Must(t, p.Report(status))
}

// containers reports new states of containers.
func (p *pod) containers(t *testing.T, statuses ...object) {
	t.Helper()
	p.status(t, object{"containerStatuses": statuses})
}

// over reports the end of the pod, as a kubelet does.
func (p *pod) over(t *testing.T, phase, reason string, statuses ...object) {
	t.Helper()
	p.status(t, object{"phase": phase, "containerStatuses": statuses,
		"conditions": []object{{"type": "Ready", "status": "False", "reason": reason}}})
}

// remove deletes the pod at once: after the end of its containers as its kubelet does, or by force.
func (p *pod) remove(t *testing.T) {
	t.Helper()
	_, err := p.Server.Ask("DELETE", p.Path(), object{"gracePeriodSeconds": 0})
	proctest.Must(t, err)
}
