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
func renew(t *testing.T, file, from string) {
	t.Helper()
	write(t, file+".new", read(t, from))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// reload does what systemctl reload does: it runs the unit's command.
func reload(t *testing.T, p *proctest.Process, u unit) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(u.one(t, "Service.ExecReload"), "$MAINPID",
		fmt.Sprint(p.PID())))
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", words, err, out)
	}
}

// installed starts a program as its unit says, with the files of somebody's certificate, and returns the directory that
// stands for /etc/unlocker.
func installed(
	t *testing.T, etcd *etcdtest.Server, endpoint, program, as string,
) (p *proctest.Process, u unit, etc, address string) {
	t.Helper()
	u = readUnit(t, repository+"/deploy/systemd/"+program+".service")
	etc = t.TempDir()
	address = proctest.FreeAddr(t)
	cert, key := etcd.CA().Issue(t, as)
	for name, from := range map[string]string{"ca.crt": etcd.CA().File(), program + ".crt": cert,
		program + ".key": key} {
		write(t, filepath.Join(etc, name), read(t, from))
	}
	environment := append(u.environment(t, etc, program), strings.ToUpper(program)+"_ETCD_ENDPOINTS="+endpoint)
	if program == "unlocker" {
		environment = append(environment, "UNLOCKER_WEB_LISTEN_ADDRESS="+address)
	} else {
		pages := "MUTEXDASH_WEB_LISTEN_ADDRESS=" + proctest.FreeAddr(t)
		environment = append(environment, pages, "MUTEXDASH_WEB_OPS_ADDRESS="+address)
	}
	return start(t, environment, program, "--web.shutdown-delay=0s"), u, etc, address
}

// The unit's certificates are the files in /etc/unlocker as they are now, not as they were when the program started.
func TestACertificateThatIsRenewedUnderARunningUnitIsUsed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	etcd.AddUser(t, "unlocker", "", "/mutexes/", etcdtest.ReadWrite)
	etcd.AddUser(t, "mutexdash", "", "/mutexes/", etcdtest.Read)
	etcd.AddUser(t, "former", "", "/elsewhere/", etcdtest.Read)
	for _, program := range []string{"unlocker", "mutexdash"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			proxy := etcdtest.NewProxy(t, etcd.Endpoint())
			p, u, etc, address := installed(t, etcd, proxy.Endpoint(), program, "former")
			p.Prints(t, "permission")
			cert, key := etcd.CA().Issue(t, program)
			renew(t, filepath.Join(etc, program+".crt"), cert)
			reload(t, p, u)
			p.Prints(t, "private key does not match public key") // half of a pair is told, and ends nothing
			renew(t, filepath.Join(etc, program+".key"), key)
			reload(t, p, u)
			answers(t, p, http.DefaultClient, "http://"+address+"/readyz", http.StatusOK)

			// A new connection needs no reload: it reads the certificate that is there.
			formerCert, formerKey := etcd.CA().Issue(t, "former")
			renew(t, filepath.Join(etc, program+".crt"), formerCert)
			renew(t, filepath.Join(etc, program+".key"), formerKey)
			before := strings.Count(p.Output(), "permission")
			proxy.Cut()
			proxy.Heal()
			proctest.Eventually(t, "the permissions of the new certificate", func() error {
				if strings.Count(p.Output(), "permission") == before {
					return fmt.Errorf("it still has the permissions of the certificate that is gone")
				}
				return nil
			})
			end(t, p)
		})
	}
}

// A reload without anything new costs no connection, and so no watch and no gap.
func TestAReloadWithoutNewFilesKeepsTheConnections(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	etcd.AddUser(t, "unlocker", "", "/mutexes/", etcdtest.ReadWrite)
	p, u, etc, address := installed(t, etcd, etcd.Endpoint(), "unlocker", "unlocker")
	answers(t, p, http.DefaultClient, "http://"+address+"/readyz", http.StatusOK)
	reload(t, p, u)
	p.Prints(t, `"connections":0`)
	cert, key := etcd.CA().Issue(t, "unlocker")
	renew(t, filepath.Join(etc, "unlocker.crt"), cert)
	renew(t, filepath.Join(etc, "unlocker.key"), key)
	reload(t, p, u)
	p.Prints(t, `"connections":1`)
	answers(t, p, http.DefaultClient, "http://"+address+"/readyz", http.StatusOK)
	end(t, p)
}
