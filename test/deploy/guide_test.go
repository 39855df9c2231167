//go:build chart

package deploy

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/etcdtest"
)

var etcdctl = flag.String("etcdctl", "", "etcd's command")

// TestTheRolesOfTheGuideAreRight runs the commands of docs/kubernetes.md against an etcd that asks for certificates, and looks at what each
// user may do then.
func TestTheRolesOfTheGuideAreRight(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.ClientCerts())
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(read(t, repository+"/docs/kubernetes.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("the guide has %d blocks of commands", len(blocks))
	}
	path := t.TempDir()
	if err := os.Symlink(*etcdctl, filepath.Join(path, "etcdctl")); err != nil {
		t.Fatal(err)
	}
	cert, key := etcd.CA().Issue(t, "root")
	for _, block := range blocks {
		script := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block[1])
		script.Env = []string{"PATH=" + path + ":" + os.Getenv("PATH"), "ETCDCTL_ENDPOINTS=" + etcd.Endpoint(),
			"ETCDCTL_CACERT=" + etcd.CA().File(), "ETCDCTL_CERT=" + cert, "ETCDCTL_KEY=" + key}
		if out, err := script.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, block[1])
		}
	}
	for user, may := range map[string]struct{ read, write, elsewhere bool }{
		"unlocker":  {true, true, false},
		"mutexdash": {true, false, false},
		"billing":   {true, true, false},
		"stranger":  {false, false, false},
		"root":      {true, true, true},
	} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, TLS: etcd.ClientTLS(t, user), Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		_, readErr := c.Get(t.Context(), "/mutexes/", clientv3.WithPrefix())
		_, writeErr := c.Put(t.Context(), "/mutexes/"+user, "")
		_, elsewhereErr := c.Put(t.Context(), "/mutexes", "")
		for what, got := range map[string]struct {
			err error
			may bool
		}{"read": {readErr, may.read}, "write": {writeErr, may.write}, "write elsewhere": {elsewhereErr, may.elsewhere}} {
			if (got.err == nil) != got.may || got.err != nil && !denied(got.err) {
				t.Errorf("%s: %s: %v, want it allowed: %v", user, what, got.err, got.may)
			}
		}
		c.Close()
	}
}

func denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || strings.Contains(err.Error(), "permission denied")
}
