//go:build kube

package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The API server accepts the CronJob of docs/howto/recipes.md, with either volume, and its container's command runs
// with what is in the volume then. There is no kubelet: the test copies mutexctl, and vacuumdb only says that it ran.
func TestRecipeForACronJob(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/recipes.md")
	proctest.Must(t, err)
	text := regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```").FindSubmatch(page)
	image := regexp.MustCompile(`image: \{reference:\s+\S+\}`).Find(page)
	if text == nil || image == nil {
		t.Fatal("the page lacks the CronJob, or the image volume")
	}
	c := startCluster(t)
	for _, volume := range []string{"emptyDir: {}", string(image)} {
		manifest := strings.Replace(string(text[1]), "emptyDir: {}", volume, 1)
		c.ask(t, "POST", "/apis/batch/v1/namespaces/default/cronjobs?fieldValidation=Strict&dryRun=All",
			[]byte(manifest))
	}

	var job struct {
		Spec struct {
			JobTemplate struct {
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct{ Command, Args []string }
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	proctest.Must(t, yaml.Unmarshal(text[1], &job))
	container := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	tool, found := strings.CutPrefix(container.Command[0], "/tools/")
	if !found {
		t.Fatalf("%q", container.Command)
	}
	tools := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(tools, "vacuumdb"), []byte("#!/bin/sh\necho \"vacuumed $*\"\n"), 0o700))
	cmd := programs.Command(t, tool, append(container.Command[1:], container.Args...)...)
	cmd.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+c.etcd.Endpoint(), "PATH="+tools+":"+os.Getenv("PATH"))
	if r := proctest.Run(t, cmd); r.Code != 0 || r.Stdout != "vacuumed --all\n" {
		t.Errorf("status %d: %q, %s", r.Code, r.Stdout, r.Stderr)
	}
}
