package deploy

import (
	"crypto/tls"
	"fmt"
	"math/big"
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

// Without a reload: the certificate of the pages, the password in etcd, who may do what.
func TestCertificatePasswordAndPermissionsAreFollowed(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Auth())
	etcd.AddUser(t, "mutexdash", "first", "/mutexes/", etcdtest.Read)
	proxy := etcdtest.NewProxy(t, etcd.Endpoint())
	web := etcdtest.NewCA(t)
	etc := t.TempDir()
	cert, key := web.Issue(t, "pages")
	in := func(name string) string { return filepath.Join(etc, name) }
	write(t, in("web.yml"), "tls_server_config: {cert_file: pages.crt, key_file: pages.key}")
	write(t, in("password"), "first\n")
	write(t, in("permissions.yaml"), "users: {}")
	write(t, in("pages.crt"), read(t, cert))
	write(t, in("pages.key"), read(t, key))
	address := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	p := start(t, nil, "mutexdash", "--web.shutdown-delay=0s",
		"--etcd.endpoints="+proxy.Endpoint(), "--etcd.user=mutexdash", "--etcd.password-file="+in("password"),
		"--web.listen-address="+address, "--web.ops-address="+ops, "--web.config.file="+in("web.yml"),
		"--web.identity=header", "--web.identity.header=X-User", "--web.trusted-proxies=127.0.0.1",
		"--web.permissions-file="+in("permissions.yaml"))
	answers(t, p, http.DefaultClient, "http://"+ops+"/readyz", http.StatusOK)

	status, before := visit(t, web, address)
	if status != http.StatusForbidden {
		t.Errorf("a user without permissions gets %d", status)
	}
	cert, key = web.Issue(t, "pages")
	renew(t, in("pages.crt"), cert)
	renew(t, in("pages.key"), key)
	write(t, in("permissions.yaml"), "users: {ann: [view]}")
	proctest.Eventually(t, "the page with the new certificate", func() error {
		if status, now := visit(t, web, address); status != http.StatusOK || now.Cmp(before) == 0 {
			return fmt.Errorf("status %d, certificate %v, which was %v", status, now, before)
		}
		return nil
	})

	write(t, in("password"), "second\n")
	if _, err := etcd.Client(t).UserChangePassword(t.Context(), "mutexdash", "second"); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if _, err := etcd.Client(t).Put(t.Context(), "/mutexes/later/uuid",
		"00000000-0000-4000-8000-000000000001"); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	proctest.Eventually(t, "the lock that came later", func() error {
		return contains("http://"+ops+"/metrics", `mutexdash_locks{state="malformed"} 1`)
	})
	end(t, p)
}

// visit is ann's look at the pages, and the number of the certificate that they have.
func visit(t *testing.T, ca *etcdtest.CA, address string) (status int, serial *big.Int) {
	t.Helper()
	trust := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-User", "ann")
	resp, err := client.Do(request)
	if err != nil {
		return 0, new(big.Int) // half of a pair, for a moment
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber
}
