//go:build kube

package kube

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// deployment is what is read of a Deployment in the API server.
type deployment struct {
	Metadata struct{ UID string }
	Spec     struct {
		Template struct {
			Spec struct {
				ServiceAccountName string
				Containers         []struct {
					Name    string
					Command []string
					Args    []string
				}
				Volumes []struct {
					Name      string
					Projected struct {
						Sources []struct {
							Secret, ConfigMap struct {
								Name  string
								Items []struct{ Key, Path string }
							}
						}
					}
				}
			}
		}
	}
}

func (c *cluster) deployment(t *testing.T, namespace, name string) (d deployment) {
	t.Helper()
	text, err := json.Marshal(c.ask(t, "GET", "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, "", nil))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// args are the flags of the only container.
func (d deployment) args() []string { return d.Spec.Template.Spec.Containers[0].Args }

// starts runs the unlocker of a Deployment as a kubelet would: with its flags, and with the files that the API server
// has for its volumes. It waits until the unlocker is ready.
func (c *cluster) starts(t *testing.T, namespace, name string) (p *proctest.Process, url string) {
	t.Helper()
	d := c.deployment(t, namespace, name)
	root := t.TempDir()
	for _, volume := range d.Spec.Template.Spec.Volumes {
		if volume.Name != "etcd" {
			continue
		}
		for _, source := range volume.Projected.Sources {
			for _, item := range source.Secret.Items {
				data := c.data(t, namespace, "secrets", source.Secret.Name)
				text, err := base64.StdEncoding.DecodeString(data[item.Key].(string))
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(root, item.Path), text)
			}
			for _, item := range source.ConfigMap.Items {
				data := c.data(t, namespace, "configmaps", source.ConfigMap.Name)
				write(t, filepath.Join(root, item.Path), []byte(data[item.Key].(string)))
			}
		}
	}
	address := proctest.FreeAddr(t)
	here := strings.NewReplacer("/etc/unlocker/etcd", root, "address=:10980", "address="+address)
	var args []string
	for _, arg := range d.args() {
		args = append(args, here.Replace(arg))
	}
	p = proctest.Start(t, programs.Command(t, "unlocker", append(args, "--web.shutdown-delay=0s")...))
	proctest.Answers(t, "http://"+address+"/readyz", http.StatusOK)
	return p, "http://" + address
}

func (c *cluster) data(t *testing.T, namespace, kind, name string) object {
	t.Helper()
	data, _ := c.ask(t, "GET", "/api/v1/namespaces/"+namespace+"/"+kind+"/"+name, "", nil)["data"].(object)
	return data
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
