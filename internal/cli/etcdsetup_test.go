package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// TestScriptsOfEtcdSetup runs the scripts in testdata/etcd-setup, each against its own etcd without users, and CERTS
// against one that requires certificates.
func TestScriptsOfEtcdSetup(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/etcd-setup/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%q, %v", scripts, err)
	}
	for _, script := range scripts {
		options := []etcdtest.Option{}
		if strings.HasSuffix(script, "certs.txtar") {
			options = append(options, etcdtest.ClientCerts())
		}
		server := etcdtest.Start(t, options...)
		testscript.Run(t, testscript.Params{
			Files: []string{script},
			Setup: func(e *testscript.Env) error {
				e.Setenv("MUTEXCTL_ETCD_ENDPOINTS", server.Endpoint())
				e.Setenv("MUTEXCTL_LOG_LEVEL", "error") // the password goes without TLS
				if server.CA() == nil {
					return nil
				}
				e.Setenv("MUTEXCTL_ETCD_CACERT", server.CA().File())
				for user, lives := range map[string]time.Duration{"root": 12 * time.Hour, "billing": 12 * time.Hour,
					"mutexdash": 12 * time.Hour, "unlocker-witness": 12 * time.Hour, "ending": 20 * time.Minute,
					"ended": -time.Minute} {
					cert, key := server.CA().Issue(t, user, time.Now().Add(lives))
					for from, to := range map[string]string{cert: user + ".crt", key: user + ".key"} {
						content, err := os.ReadFile(from)
						if err == nil {
							err = os.WriteFile(filepath.Join(e.WorkDir, to), content, 0o600)
						}
						if err != nil {
							return fmt.Errorf("certificate of %s: %w", user, err)
						}
					}
				}
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		})
	}
}
