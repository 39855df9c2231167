//go:build chart

package deploy

import (
	"errors"
	"io"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// release is a rendered scenario: what runs, and with which files.
type release struct {
	endpoint string
	objects  map[string]map[string]string // secrets and ConfigMaps, its own and those that somebody made before
	daemons  []podSpec
	test     podSpec
	running  []*proctest.Process
	web      *proctest.CA // of servers and browsers
}

// What is read of Kubernetes' objects.
type (
	manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     struct {
			podSpec  `yaml:",inline"`
			Template struct{ Spec podSpec }
		}
	}
	podSpec struct {
		Containers []container
		Volumes    []volume
	}
	container struct {
		Name    string
		Command []string
		Args    []string
		Env     []struct {
			Name, Value string
			ValueFrom   struct {
				SecretKeyRef     struct{ Name, Key string } `yaml:"secretKeyRef"`
				ResourceFieldRef struct{ Resource string }  `yaml:"resourceFieldRef"`
				FieldRef         struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		EnvFrom []struct {
			ConfigMap source `yaml:"configMapRef"`
			Secret    source `yaml:"secretRef"`
		} `yaml:"envFrom"`
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
		Resources      struct{ Limits map[string]string }
	}
	probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	volume struct {
		Name      string
		ConfigMap source `yaml:"configMap"`
		Secret    struct {
			Name string `yaml:"secretName"`
		}
		Projected struct{ Sources []projection }
	}
	projection struct {
		Secret    source
		ConfigMap source `yaml:"configMap"`
	}
	source struct {
		Name  string
		Items []struct{ Key, Path string }
	}
)

// readRelease reads a rendered scenario and gives it the etcd and the secrets that it expects.
func readRelease(t *testing.T, file string) *release {
	t.Helper()
	r := &release{objects: map[string]map[string]string{}, web: proctest.NewCA(t)}
	f, err := os.Open(file)
	proctest.Must(t, err)
	defer f.Close()
	decoder := yaml.NewDecoder(f)
	for {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch m.Kind {
		case "Deployment", "DaemonSet":
			r.daemons = append(r.daemons, m.Spec.Template.Spec)
		case "StatefulSet":
			r.endpoint = runTrialEtcd(t, m.Spec.Template.Spec.Containers[0])
		case "Pod":
			r.test = m.Spec.podSpec
		case "ConfigMap":
			r.objects[m.Metadata.Name] = m.Data
		}
	}
	if len(r.daemons) == 0 {
		t.Fatalf("%s starts nothing", file)
	}
	if r.endpoint == "" {
		r.prepareEtcd(t, r.daemons[0].Containers[0].Args)
	}
	r.webSecrets(t)
	return r
}
