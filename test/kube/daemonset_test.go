//go:build kube

package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// podTemplate is what a program needs to know of the pods of a DaemonSet.
type podTemplate struct {
	Spec struct {
		Template struct {
			Spec struct {
				HostPID    bool `yaml:"hostPID"`
				Containers []struct {
					Command []string `yaml:"command"`
					Args    []string `yaml:"args"`
					Env     []struct {
						Name      string `yaml:"name"`
						ValueFrom struct {
							FieldRef struct {
								FieldPath string `yaml:"fieldPath"`
							} `yaml:"fieldRef"`
						} `yaml:"valueFrom"`
					} `yaml:"env"`
					Mounts []struct {
						Name      string `yaml:"name"`
						MountPath string `yaml:"mountPath"`
						ReadOnly  bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				} `yaml:"containers"`
				Volumes []struct {
					Name     string `yaml:"name"`
					HostPath struct {
						Path string `yaml:"path"`
					} `yaml:"hostPath"`
				} `yaml:"volumes"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

// The API server accepts the witness of each node that remembers the boots of its node. The program starts with what
// its container is given, and remembers the boot under the node's name, in the directory of the node.
func daemonSet(t *testing.T, c *cluster) {
	c.namespace(t, "locking-nodes")
	var set podTemplate
	for _, m := range scenario(t, "witness-state") {
		text := strings.ReplaceAll(m.text, "namespace: locking", "namespace: locking-nodes")
		m.Metadata.Namespace = "locking-nodes"
		dry := "?fieldValidation=Strict&dryRun=All"
		if m.Kind == "ServiceAccount" {
			dry = "" // pods need it
		}
		c.ask(t, "POST", m.path()+dry, "application/yaml", []byte(text))
		if m.Kind == "DaemonSet" {
			if err := yaml.Unmarshal([]byte(text), &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := set.Spec.Template.Spec
	if len(pod.Containers) != 1 || !pod.HostPID {
		t.Fatalf("the pods are %+v", pod)
	}
	container := pod.Containers[0]
	if !slices.Equal(container.Command, []string{"/usr/bin/unlocker"}) {
		t.Errorf("the command is %q", container.Command)
	}
	node, address := t.TempDir(), proctest.FreeAddr(t)
	replace := []string{":10983", address, "https://etcd-0.etcd:2379", c.etcd.Endpoint()}
	for _, e := range container.Env {
		if e.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			replace = append(replace, "$("+e.Name+")", "node-7")
		}
	}
	for _, m := range container.Mounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.HostPath.Path == "/var/lib/unlocker-witness" && !m.ReadOnly {
				replace = append(replace, m.MountPath, node)
			}
		}
	}
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.NewReplacer(replace...).Replace(arg))
	}
	proctest.Start(t, programs.Command(t, "unlocker", args...))
	proctest.Answers(t, "http://"+address+"/readyz", http.StatusOK)
	text, err := os.ReadFile(filepath.Join(node, "boots.json"))
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || !strings.Contains(string(text), `"hostname":"node-7"`) ||
		!strings.Contains(string(text), strings.TrimSpace(string(boot))) {
		t.Errorf("remembered is %s (%v), want boot %s of node-7", text, err, boot)
	}
}
