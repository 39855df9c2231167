package deploy

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// renew replaces a file under the running program, as rotation of certificates and passwords does.
func (s *service) renew(t *testing.T, name, from string) {
	t.Helper()
	file := filepath.Join(s.etc, name)
	write(t, file+".new", read(t, from))
	proctest.Must(t, os.Rename(file+".new", file))
}

// reload does what systemctl reload does: it runs the unit's command.
func (s *service) reload(t *testing.T) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(s.one(t, "Service.ExecReload"), "$MAINPID", fmt.Sprint(s.PID())))
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", words, err, out)
	}
}

// The unit's certificates are the files in /etc/unlocker as they are now, not as they were when the program started.
func TestRenewedCertificateOfARunningUnitIsUsed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	etcd.AddUser(t, "unlocker", "", "/mutexes/", etcdtest.ReadWrite)
	etcd.AddUser(t, "mutexdash", "", "/mutexes/", etcdtest.Read)
	for _, program := range []string{"unlocker", "mutexdash"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			proxy := etcdtest.NewProxy(t, etcd.Endpoint())
			former := "before-" + program // the files of a certificate are named after its user
			etcd.AddUser(t, former, "", "/elsewhere/", etcdtest.Read)
			s := installed(t, etcd, proxy.Endpoint(), program, former)
			s.Prints(t, "permission")
			cert, key := etcd.CA().Issue(t, program)
			s.renew(t, program+".crt", cert)
			s.reload(t)
			s.Prints(t, "private key does not match public key") // half of a pair is told, and ends nothing
			s.renew(t, program+".key", key)
			s.reload(t)
			proctest.Answers(t, s.url+"/readyz", http.StatusOK)

			// A new connection needs no reload: it reads the certificate that is there.
			formerCert, formerKey := etcd.CA().Issue(t, former)
			s.renew(t, program+".crt", formerCert)
			s.renew(t, program+".key", formerKey)
			before := strings.Count(s.Output(), "permission")
			proxy.Cut()
			proxy.Heal()
			proctest.Eventually(t, "the permissions of the new certificate", func() error {
				if strings.Count(s.Output(), "permission") == before {
					return fmt.Errorf("it still has the permissions of the old certificate")
				}
				return nil
			})
			end(t, s.Process)
		})
	}
}
