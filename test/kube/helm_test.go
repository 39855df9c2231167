//go:build kube

package kube

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var helmProgram = flag.String("helm", "", "path of the helm command: make kube")

const (
	repository = "../.."
	chartPath  = repository + "/deploy/helm/unlocker"
	// firstChart is what an upgrade begins with as long as there is no release: the chart of that commit.
	firstChart = "37eaf356"
)

// helm is Helm's command, as an administrator of the cluster runs it in a namespace.
type helm struct {
	cluster    *cluster
	namespace  string
	kubeconfig string
	home       string
	before     []string // what was in the cluster
}

// newHelm makes a namespace whose pods have to be restricted, and works there.
func newHelm(t *testing.T, c *cluster, namespace string) *helm {
	t.Helper()
	if *helmProgram == "" {
		t.Fatal("helm is missing: make kube")
	}
	c.namespace(t, namespace)
	c.secure(t, namespace, "restricted")
	return &helm{c, namespace, c.kubeconfig(t, c.Address, kubetest.AdminToken), t.TempDir(), c.inventory(t)}
}

// secure sets the level of Pod Security that the namespace enforces.
func (c *cluster) secure(t *testing.T, namespace, level string) {
	t.Helper()
	c.ask(t, "PATCH", "/api/v1/namespaces/"+namespace,
		object{"metadata": object{"labels": object{"pod-security.kubernetes.io/enforce": level}}})
}

// try runs a command of helm.
func (h *helm) try(t *testing.T, args ...string) proctest.Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), *helmProgram, append(args, "--namespace", h.namespace)...)
	cmd.Env = []string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + h.kubeconfig}
	return proctest.Run(t, cmd)
}

// run is try for what has to succeed.
func (h *helm) run(t *testing.T, args ...string) string {
	t.Helper()
	got := h.try(t, args...)
	if got.Code != 0 {
		t.Fatalf("helm %s: %s%s", strings.Join(args, " "), got.Stdout, got.Stderr)
	}
	return got.Stdout
}

// uninstall uninstalls the release, which leaves nothing.
func (h *helm) uninstall(t *testing.T) {
	t.Helper()
	h.run(t, "uninstall", "locks")
	h.leavesNothing(t)
}

// leavesNothing waits until the cluster has nothing that it had not before.
func (h *helm) leavesNothing(t *testing.T) {
	t.Helper()
	proctest.Eventually(t, "an empty cluster", func() error {
		left := slices.DeleteFunc(h.cluster.inventory(t),
			func(name string) bool { return slices.Contains(h.before, name) })
		if len(left) != 0 {
			return fmt.Errorf("there is %q", left)
		}
		return nil
	})
}

// oldChart unpacks the chart of the last tag, or of firstChart before there is one.
func oldChart(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `
revision=$(git describe --tags --match='v[0-9]*' --abbrev=0 HEAD^ 2> /dev/null || echo "$1")
echo "upgrades begin with the chart of $revision"
git archive "$revision" deploy/helm/unlocker | tar -x -C "$2"`, "bash", firstChart, directory)
	unpack.Dir = repository
	out, err := unpack.CombinedOutput()
	if err != nil {
		t.Fatalf("the chart cannot be read, which takes the whole history of the repository: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return filepath.Join(directory, "deploy/helm/unlocker")
}

// kinds lists the resources that can be listed, by the path of their version: "/api/v1" has "pods".
func (c *cluster) kinds(t *testing.T) (all []string) {
	t.Helper()
	versions := []string{"/api/v1"}
	for _, group := range c.ask(t, "GET", "/apis", nil)["groups"].([]any) {
		preferred := group.(object)["preferredVersion"].(object)["groupVersion"].(string)
		versions = append(versions, "/apis/"+preferred)
	}
	for _, version := range versions {
		resources, _ := c.ask(t, "GET", version, nil)["resources"].([]any)
		for _, resource := range resources {
			r := resource.(object)
			if verbs, _ := r["verbs"].([]any); slices.Contains(verbs, any("list")) {
				all = append(all, version+"/"+r["name"].(string))
			}
		}
	}
	return all
}

// items lists objects.
func (c *cluster) items(t *testing.T, path string) (all []object) {
	t.Helper()
	items, _ := c.ask(t, "GET", path, nil)["items"].([]any)
	for _, item := range items {
		all = append(all, item.(object))
	}
	return all
}

// inventory is every object in the cluster, but for what it notes about itself.
func (c *cluster) inventory(t *testing.T) (all []string) {
	t.Helper()
	for _, kind := range c.kinds(t) {
		if strings.HasSuffix(kind, "/events") || strings.HasSuffix(kind, "/leases") {
			continue
		}
		for _, item := range c.items(t, kind) {
			meta := item["metadata"].(object)
			all = append(all, fmt.Sprint(kind, " ", meta["namespace"], " ", meta["name"]))
		}
	}
	slices.Sort(all)
	return all
}
