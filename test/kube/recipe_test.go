//go:build kube

package kube

import (
	"fmt"
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
	find := func(pattern string) string { return string(regexp.MustCompile(pattern).Find(page)) }
	manifest, image := find("apiVersion(?s:.*?)\n```"), find(`image: \{reference:\s+\S+\}`)
	c := startCluster(t)
	for _, volume := range []string{"emptyDir: {}", image} {
		job := strings.Replace(strings.TrimSuffix(manifest, "```"), "emptyDir: {}", volume, 1)
		made := c.ask(t, "POST", "/apis/batch/v1/namespaces/default/cronjobs?fieldValidation=Strict&dryRun=All",
			[]byte(job))
		if kind, _, found := strings.Cut(volume, ":"); !found ||
			!strings.Contains(fmt.Sprint(made), kind+":map[") {
			t.Errorf("without the volume %q: %v", volume, made)
		}
	}

	var container struct{ Command, Args []string }
	proctest.Must(t, yaml.Unmarshal([]byte(find(`command: \[/tools.*`)+"\n"+find(`args: .*`)), &container))
	tools := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(tools, "vacuumdb"), []byte("#!/bin/sh\necho \"vacuumed $*\"\n"), 0o700))
	vacuum := append(container.Command[1:], container.Args...)
	for _, run := range []struct {
		args   []string
		vacuum bool
	}{{vacuum, true}, {[]string{"reserve", "shop/vacuum", "--for=1h", "--purpose=disks"}, false}, {vacuum, false}} {
		cmd := programs.Command(t, filepath.Base(container.Command[0]), run.args...)
		cmd.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+c.etcd.Endpoint(),
			"PATH="+tools+":"+os.Getenv("PATH"))
		r := proctest.Run(t, cmd)
		if r.Code != 0 || strings.Contains(r.Stdout, "vacuumed --all\n") != run.vacuum {
			t.Errorf("status %d: %q, %s", r.Code, r.Stdout, r.Stderr)
		}
	}
}
