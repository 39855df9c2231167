//go:build kube

package kube

import (
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		if t.Failed() {
			t.Logf("the API server:\n%s", server.Process.Output())
		}
	})
	proctest.Eventually(t, "the API server", server.Ready)
	proctest.Eventually(t, "the API server's own service, which it makes when it is ready", func() error {
		_, err := server.Ask("GET", "/api/v1/namespaces/default/services/kubernetes", "", nil)
		return err
	})
	return &cluster{server, etcd}
}

// kubeconfig writes a file for clients that reach the API server at an address and have a token.
func (c *cluster) kubeconfig(t *testing.T, address, token string) string {
	t.Helper()
	path, err := c.Kubeconfig(strings.ReplaceAll(t.Name(), "/", "-"), address, token)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ask is Ask where a refusal fails the test.
func (c *cluster) ask(t *testing.T, method, path, contentType string, body any) object {
	t.Helper()
	answer, err := c.Ask(method, path, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (c *cluster) create(t *testing.T, path string, o object) object {
	t.Helper()
	return c.ask(t, "POST", path, "application/json", o)
}

// namespace makes one with the service account that pods need.
func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	if err := c.MakeNamespace(name); err != nil {
		t.Fatal(err)
	}
}
