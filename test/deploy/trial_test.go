//go:build chart

package deploy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// asEtcd is the environment variable that turns this program into etcd.
const asEtcd = "DEPLOY_TEST_ETCD"

// init makes this program what /usr/local/bin/etcd is in the image of the trial.
func init() { //nolint:gochecknoinits // TestMain is in a file without this tag
	if os.Getenv(asEtcd) != "" {
		os.Unsetenv(asEtcd) // etcd warns of variables that it does not know
		etcdmain.Main(os.Args)
		os.Exit(0)
	}
}

// runTrialEtcd starts etcd as the chart does, on ports of its own.
func runTrialEtcd(t *testing.T, box container) (endpoint string) {
	t.Helper()
	if box.Command[0] != "/usr/local/bin/etcd" {
		t.Errorf("%s is not where the image has it", box.Command[0])
	}
	client := proctest.FreeAddr(t)
	peer := proctest.FreeAddr(t)
	root := t.TempDir()
	here := strings.NewReplacer("0.0.0.0:2379", client, "127.0.0.1:2380", peer, "=/data/", "="+root+"/data/")
	var args []string
	for _, arg := range box.Args {
		if strings.HasPrefix(arg, "--advertise-client-urls=") {
			arg = "--advertise-client-urls=http://" + client // the name of the Service is known in the cluster only
		}
		args = append(args, here.Replace(arg))
	}
	proctest.Must(t, os.MkdirAll(filepath.Join(root, box.VolumeMounts[0].MountPath), 0o700))
	cmd := proctest.Self(asEtcd, "1")
	cmd.Args = append(cmd.Args[:1], args...)
	cmd.Env = []string{asEtcd + "=1"}
	proctest.Start(t, cmd)
	for _, probe := range []probe{box.LivenessProbe, box.ReadinessProbe} {
		proctest.Answers(t, "http://"+client+probe.HTTPGet.Path, http.StatusOK)
	}
	return "http://" + client
}
