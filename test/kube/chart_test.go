//go:build kube

package kube

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
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
func scenario(t *testing.T, name string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(*rendered, name+".yaml"))
	if err != nil {
		t.Fatalf("%v: make kube", err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		m := manifest{text: document}
		if err := yaml.Unmarshal([]byte(document), &m); err != nil {
			t.Fatal(err)
		}
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

// The API server accepts all that the chart makes for a witness, and the account that it makes sees pods.
func chart(t *testing.T, c *cluster) {
	c.namespace(t, "locking")
	c.namespace(t, "billing")
	for _, m := range scenario(t, "kubernetes") {
		dry := "?fieldValidation=Strict&dryRun=All"
		if m.Kind == "ServiceAccount" {
			dry = "" // pods need it
		}
		c.ask(t, "POST", m.path()+dry, "application/yaml", []byte(m.text))
	}
	for _, m := range scenario(t, "kubernetes-namespaces") {
		if strings.HasPrefix(m.Kind, "Role") && m.Metadata.Namespace == "billing" {
			c.ask(t, "POST", m.path()+"?fieldValidation=Strict", "application/yaml", []byte(m.text))
		}
	}
	token := c.create(t, "/api/v1/namespaces/locking/serviceaccounts/locks-unlocker-pods/token",
		object{"spec": object{}})["status"].(object)["token"].(string)
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, token), "--kubernetes.namespaces=billing")
	w.shows(t, "unlocker_kubernetes_synced 1")
	p := podOf(t, c, "billing", "invoices", "Never", "worker")
	h := w.lockedBy(t, "invoices", p.by("worker"), ago)
	p.over(t, "Failed", "PodFailed", p.Ended("worker", "1"))
	h.proven(t, metadata.CausePodEnded)
}
