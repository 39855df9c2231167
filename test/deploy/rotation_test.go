package deploy

import (
	"net/http"
	"os"
	"path/filepath"
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
			s.renew(t, program+".key", key)
			proxy.Cut()
			proxy.Heal()
			proctest.Answers(t, s.url+"/readyz", http.StatusOK)
			end(t, s.Process)
		})
	}
}
