//go:build kube

package kube

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var rendered = flag.String("rendered", "", "directory with the rendered scenarios of the chart")

// manifest is what has to be known of an object to create it.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name      string `yaml:"name"`
		Namespace string `yaml:"namespace"`
	} `yaml:"metadata"`

	text string
}

// scenario reads the objects that the chart makes of the values in one of its files.
func scenario(t *testing.T, file string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: make kube", err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		m := manifest{text: document}
		proctest.Must(t, yaml.Unmarshal([]byte(document), &m))
		if m.Kind != "" {
			all = append(all, m)
		}
	}
	return all
}

// path is where the API server has the kind.
func (m manifest) path() string {
	root := "/apis/" + m.APIVersion
	if m.APIVersion == "v1" {
		root = "/api/v1"
	}
	switch {
	case m.Metadata.Namespace != "":
		root += "/namespaces/" + m.Metadata.Namespace
	case !strings.HasPrefix(m.Kind, "Cluster"):
		root += "/namespaces/locking" // where helm puts what names none
	}
	plural := strings.ToLower(m.Kind) + "s"
	switch m.Kind {
	case "NetworkPolicy":
		plural = "networkpolicies"
	case "Ingress":
		plural = "ingresses"
	}
	return root + "/" + plural
}

// addKinds makes the kinds of the Prometheus operator and of the Gateway API known, from the files of their projects.
func (c *cluster) addKinds(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(*rendered, "crds", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("only %q (%v): make kube", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		proctest.Must(t, err)
		c.ask(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text)
	}
	proctest.Eventually(t, "the kinds of others", func() error {
		for _, kind := range []string{"monitoring.coreos.com/v1/servicemonitors",
			"monitoring.coreos.com/v1/prometheusrules", "gateway.networking.k8s.io/v1/httproutes"} {
			if _, err := c.Ask("GET", "/apis/"+kind, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

const monitored = "policy=alert-only,etcd.endpoints={etcd:2379},monitoring.serviceMonitor.enabled=true," +
	"monitoring.prometheusRule.enabled=true,monitoring.grafana.enabled=true"

// Where nobody knows the kinds of the Prometheus operator, asking for them is refused before anything is installed.
func withoutKinds(t *testing.T, c *cluster) {
	h := newHelm(t, c, "unmonitored")
	got := h.try(t, "install", "locks", chartPath, "--set", monitored)
	for _, say := range []string{`no matches for kind "PrometheusRule"`, `no matches for kind "ServiceMonitor"`} {
		if got.Code == 0 || !strings.Contains(got.Stderr, say) {
			t.Errorf("status %d: %s, want something about %s", got.Code, got.Stderr, say)
		}
	}
	h.leavesNothing(t)
}

// Where they are known, they are installed, may be left out later, and go with the release.
func withKinds(t *testing.T, c *cluster) {
	h := newHelm(t, c, "monitored")
	h.run(t, "install", "locks", chartPath, "--set", monitored)
	monitors := func() (names []string) {
		for _, kind := range []string{"servicemonitors", "prometheusrules"} {
			for _, item := range c.items(t, "/apis/monitoring.coreos.com/v1/namespaces/monitored/"+kind) {
				names = append(names, kind+" "+item["metadata"].(object)["name"].(string))
			}
		}
		return names
	}
	want := []string{"servicemonitors locks-unlocker", "servicemonitors locks-unlocker-mutexdash",
		"prometheusrules locks-unlocker"}
	if got := monitors(); !slices.Equal(got, want) {
		t.Errorf("installed are %q, want %q", got, want)
	}
	h.run(t, "upgrade", "locks", chartPath, "--set", "policy=alert-only,etcd.endpoints={etcd:2379}")
	if got := monitors(); len(got) != 0 {
		t.Errorf("no longer wanted, and there: %q", got)
	}
	h.uninstall(t)
}

// everyScenario has the API server judge all objects of the chart as it judges those that are created, and all pods in
// a namespace that is restricted. Only a pod that sees its node's processes is refused there.
func everyScenario(t *testing.T, c *cluster) {
	for _, namespace := range []string{"locking", "billing", "shop", "nodes", "monitoring"} {
		c.namespace(t, namespace)
	}
	c.secure(t, "locking", "restricted")
	c.secure(t, "nodes", "privileged")
	files, err := filepath.Glob(filepath.Join(*rendered, "*.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("only %q (%v): make kube", files, err)
	}
	kinds := map[string]int{}
	for _, file := range files {
		name := filepath.Base(file)
		for _, m := range scenario(t, file) {
			kinds[m.Kind]++
			if m.Kind == "ServiceAccount" {
				continue // is made for the pods
			}
			c.makeAccount(m)
			_, err := c.Ask("POST", m.path()+"?fieldValidation=Strict&dryRun=All", []byte(m.text))
			if err != nil {
				t.Errorf("%s: %s %s: %v", name, m.Kind, m.Metadata.Name, err)
			}
			c.judgePods(t, name, m)
		}
	}
	odd := "metadata: {name: odd}\nspec: {ports: [{port: 80}], surprise: true}"
	if _, err := c.Ask("POST", "/api/v1/namespaces/locking/services?fieldValidation=Strict&dryRun=All",
		[]byte(odd)); err == nil || !strings.Contains(err.Error(), "surprise") {
		t.Errorf("a member that nobody knows is accepted: %v", err)
	}
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet", "Ingress", "HTTPRoute", "ServiceMonitor",
		"PrometheusRule", "ClusterRole", "Role", "NetworkPolicy", "PodDisruptionBudget"} {
		if kinds[kind] == 0 {
			t.Errorf("no scenario has a %s: %v", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
}

// judgePods asks for a pod as the object would make it.
func (c *cluster) judgePods(t *testing.T, scenario string, m manifest) {
	t.Helper()
	var o struct {
		Spec struct {
			Template object `yaml:"template"`
		} `yaml:"spec"`
	}
	proctest.Must(t, yaml.Unmarshal([]byte(m.text), &o))
	if o.Spec.Template == nil {
		return
	}
	o.Spec.Template["metadata"].(object)["name"] = m.Metadata.Name
	try := func(namespace string) error {
		_, err := c.Ask("POST", "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", withVolumes(o.Spec.Template))
		return err
	}
	err := try("locking")
	switch {
	case m.Kind != "DaemonSet" && err != nil:
		t.Errorf("%s: a pod of %s %s: %v", scenario, m.Kind, m.Metadata.Name, err)
	case m.Kind == "DaemonSet" && (err == nil || !watchesOnly(err.Error())):
		t.Errorf("%s: a witness where pods have to be restricted: %v", scenario, err)
	case m.Kind == "DaemonSet":
		if err := try("nodes"); err != nil {
			t.Errorf("%s: a witness where pods may be privileged: %v", scenario, err)
		}
	}
}

// watchesOnly reports whether a pod is refused for what a witness needs alone: it sees the processes of its node, and
// perhaps files of it.
func watchesOnly(refusal string) bool {
	_, because, found := strings.Cut(refusal, "host namespaces (hostPID=true)")
	return found && !strings.ContainsAny(strings.NewReplacer("hostPath volumes (", "", "restricted volume types (", "").
		Replace(because), "(=")
}

// withVolumes gives a pod the volumes that a StatefulSet would make of its claims.
func withVolumes(pod object) object {
	text, _ := json.Marshal(pod)
	if !strings.Contains(string(text), `"name":"data"`) || strings.Contains(string(text), "emptyDir") {
		return pod
	}
	spec := pod["spec"].(object)
	spec["volumes"] = []object{{"name": "data", "persistentVolumeClaim": object{"claimName": "data"}}}
	return pod
}

// makeAccount makes the service account that the pods of an object have, unless it is there.
func (c *cluster) makeAccount(m manifest) {
	if name := regexp.MustCompile(`serviceAccountName: (\S+)`).FindStringSubmatch(m.text); name != nil {
		for _, namespace := range []string{"locking", "nodes"} {
			_ = c.MakeAccount(namespace, name[1])
		}
	}
}
