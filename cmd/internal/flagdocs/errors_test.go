package flagdocs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// A program that rejects a file or a combination of flags names the flag in its error: paths alone look alike.
func TestUnusableFileErrorNamesItsFlag(t *testing.T) {
	ca := proctest.NewCA(t)
	cert, key := ca.Issue(t, "u")
	_, otherKey := ca.Issue(t, "v")
	missing := filepath.Join(t.TempDir(), "missing")
	junk := filepath.Join(t.TempDir(), "junk")
	proctest.Must(t, os.WriteFile(junk, []byte("{junk"), 0o600))
	etcd := map[string][]string{
		"--etcd.cacert":        {"--etcd.cacert=" + missing},
		"--etcd.cacert ":       {"--etcd.cacert=" + junk},
		"--etcd.cert":          {"--etcd.cert=" + missing, "--etcd.key=" + key},
		"--etcd.key":           {"--etcd.cert=" + cert, "--etcd.key=" + otherKey},
		"--etcd.key ":          {"--etcd.cert=" + cert},
		"--etcd.cert ":         {"--etcd.key=" + key},
		"--etcd.password-file": {"--etcd.user=u", "--etcd.password-file=" + missing},
		"--etcd.user":          {"--etcd.password-file=" + junk},
	}
	web := map[string][]string{"--web.config.file": {"--web.config.file=" + junk}}
	permissions := map[string][]string{
		"--web.permissions-file": {"--web.identity=header", "--web.trusted-proxies=127.0.0.1",
			"--web.permissions-file=" + missing},
	}
	dashboard := map[string][]string{
		"--web.identity.header":        {"--web.identity.header=X-User"},
		"--web.identity.groups-header": {"--web.identity=basic", "--web.identity.groups-header=X-Groups"},
	}
	kubernetes := map[string][]string{
		"--kubernetes.kubeconfig": {"--kubernetes.pods", "--kubernetes.kubeconfig=" + missing},
		"--kubernetes.pods":       {"--kubernetes.pods"},
		"--kubernetes.pods ":      {"--kubernetes.namespaces=a"},
		"--kubernetes.namespaces": {"--kubernetes.pods", "--kubernetes.namespaces=a,,b"},
	}
	over, cancel := context.WithCancel(t.Context()) // what is not refused ends at once
	cancel()
	for _, p := range []struct {
		program func() *cobra.Command
		args    []string
		rows    []map[string][]string
	}{
		{unlocker.Command, []string{"--policy=alert-only"}, []map[string][]string{etcd, web, kubernetes}},
		{mutexdash.Command, nil, []map[string][]string{etcd, web, permissions, dashboard}},
		{func() *cobra.Command { return cli.Command(cli.Process{}) }, []string{"list"}, []map[string][]string{etcd}},
	} {
		for _, rows := range p.rows {
			for flag, args := range rows {
				flag = strings.TrimSpace(flag)
				cmd := flags.WithoutEnvironment(p.program())
				err := flags.Execute(over, cmd, append(p.args[:len(p.args):len(p.args)], args...))
				if err == nil || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s %q: %v\nwant one sentence with %s", cmd.Name(), args, err, flag)
				}
			}
		}
	}
}
