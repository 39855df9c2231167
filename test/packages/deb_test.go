//go:build packages

package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// settings point the three services at the etcd of the machine, which has no users.
const settings = `
cd /etc/unlocker
sed -i -e '/_ETCD_C[AE]/d' -e '/_ETCD_KEY=/d' -e 's|_ETCD_ENDPOINTS=.*|_ETCD_ENDPOINTS=http://127.0.0.1:2379|' *.env`

// TestDebFromInstallToPurge installs, starts, upgrades and removes the packages under a real systemd, with the
// units' own restrictions. Whatever happens to the packages, the lock in etcd stays.
func TestDebFromInstallToPurge(t *testing.T) {
	m := boot(t)
	m.etcd(t, "")

	m.run(t, "dpkg -i /packages/old/*.deb")
	services := "unlocker unlocker-witness mutexdash"
	// Nothing runs, nor will after a reboot: the settings are examples.
	m.prints(t, "systemctl is-active "+services+" || true", "inactive\ninactive\ninactive\n")
	m.prints(t, "systemctl is-enabled "+services+" || true", "disabled\ndisabled\ndisabled\n")
	for _, user := range strings.Fields(services) {
		if entry := m.run(t, "getent passwd "+user); !strings.HasSuffix(entry, "/nologin\n") {
			t.Errorf("%s may log in: %s", user, entry)
		}
	}
	if changed := m.run(t, "dpkg --verify unlocker mutexdash mutexctl"); changed != "" {
		t.Errorf("installed, and not as in the package:\n%s", changed)
	}
	for file, want := range map[string]string{
		"/etc/unlocker": "755 root root", "/usr/share": "755 root root",
		"/usr/share/zsh/site-functions": "755 root root",
		"/etc/unlocker/unlocker.env":    "640 root root", "/etc/unlocker/unlocker-witness.env": "640 root root",
		"/etc/unlocker/mutexdash.env": "640 root root", "/usr/bin/unlocker": "755 root root",
		"/usr/lib/systemd/system/unlocker.service": "644 root root",
		"/usr/share/doc/unlocker/copyright":        "644 root root",
		"/usr/share/doc/mutexctl/copyright":        "644 root root",
		"/usr/share/man/man8/unlocker.8.gz":        "644 root root",
		"/usr/share/man/man1/mutexctl-run.1.gz":    "644 root root",
	} {
		if got := m.run(t, "stat -c '%a %U %G' "+file); got != want+"\n" {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}

	m.run(t, settings)
	m.run(t, "systemctl enable --now "+services)
	ready(t, m)
	m.prints(t, "dpkg-query -W -f '${Version}' unlocker", "1.0.0")
	m.prints(t, "stat -c '%a %U %G' /var/lib/unlocker-witness", "700 unlocker-witness unlocker-witness\n")
	m.run(t, `mutexctl reserve upgrade/me --purpose 'the disk is full' --for 1h`)
	held := m.run(t, "etcdctl get --prefix /mutexes/upgrade")
	stays := func(after string) {
		t.Helper()
		now := m.run(t, "etcdctl get --prefix /mutexes/upgrade")
		if now != held || !strings.Contains(now, "disk is full") {
			t.Errorf("the lock after the %s:\n%s\nand before it:\n%s", after, now, held)
		}
	}

	m.run(t, "systemctl stop mutexdash && echo '# ours' >> /etc/unlocker/unlocker.env")
	before := m.run(t, "systemctl show -P MainPID unlocker unlocker-witness")
	m.run(t, "dpkg -i /packages/new/*.deb")
	ready(t, m, "10980", "10983")
	m.prints(t, "dpkg-query -W -f '${Version}' unlocker", "1.1.0")
	if after := m.run(t, "systemctl show -P MainPID unlocker unlocker-witness"); after == before {
		t.Errorf("the upgrade restarted nothing: %q", after)
	}
	m.prints(t, "systemctl is-active mutexdash || true", "inactive\n") // because somebody stopped it
	m.prints(t, "tail -n 1 /etc/unlocker/unlocker.env", "# ours\n")
	m.prints(t, "mutexctl version", "v1.1.0")
	stays("upgrade")

	m.run(t, "echo secret > /etc/unlocker/unlocker.password && dpkg -r unlocker mutexdash")
	m.prints(t, "systemctl is-active "+services+" || true", "inactive\ninactive\ninactive\n")
	if wants := m.run(t, "ls /etc/systemd/system/multi-user.target.wants"); strings.Contains(wants, "unlocker") ||
		strings.Contains(wants, "mutexdash") {
		t.Errorf("removed, and still wanted at the next boot:\n%s", wants)
	}
	m.prints(t, "tail -n 1 /etc/unlocker/unlocker.env", "# ours\n")
	stays("removal")

	m.run(t, "dpkg --purge unlocker mutexdash")
	if left := m.run(t, "ls -d /etc/unlocker/* /var/lib/unlocker* 2> /dev/null || true"); left !=
		"/etc/unlocker/unlocker.password\n" {
		t.Errorf("after the purge there are\n%s", left)
	}
	m.run(t, "rm /etc/unlocker/unlocker.password && dpkg -i /packages/new/*.deb")
	m.run(t, "dpkg --purge unlocker mutexdash mutexctl")
	if _, err := os.Stat(filepath.Join(m.root, "etc/unlocker")); !os.IsNotExist(err) {
		t.Errorf("/etc/unlocker: %v", err)
	}
	stays("purge")
}

// ready waits until the probes answer, of all services or those on these ports.
func ready(t *testing.T, m *machine, ports ...string) {
	t.Helper()
	if len(ports) == 0 {
		ports = []string{"10980", "10981", "10983"}
	}
	for _, port := range ports {
		m.prints(t, fmt.Sprintf("curl -s localhost:%s/readyz || systemctl status unlocker unlocker-witness mutexdash",
			port), "ready")
	}
}
