//go:build chart

package deploy

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var etcdctl = flag.String("etcdctl", "", "etcd's command")

// TestGuidesRolesSuffice runs the commands of docs/kubernetes.md against an etcd that asks for certificates,
// and looks at what each user may do then.
func TestGuidesRolesSuffice(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.ClientCerts())
	blocks := commands(t, read(t, repository+"/docs/kubernetes.md"), 3)
	cert, key := etcd.CA().Issue(t, "root")
	environment := []string{
		"ETCDCTL_ENDPOINTS=" + etcd.Endpoint(),
		"ETCDCTL_CACERT=" + etcd.CA().File(), "ETCDCTL_CERT=" + cert, "ETCDCTL_KEY=" + key,
	}
	everybody := map[string]may{
		"unlocker":  {true, true, false},
		"mutexdash": {true, false, false},
		"billing":   {true, true, false},
		"stranger":  {false, false, false},
		"root":      {true, true, true},
	}
	look := func() {
		t.Helper()
		for user, may := range everybody {
			may.check(t, user, clientv3.Config{Endpoints: []string{etcd.Endpoint()}, TLS: etcd.ClientTLS(t, user)})
		}
	}
	runs(t, t.TempDir(), environment, blocks[:2]...)
	look()
	runs(t, t.TempDir(), environment, blocks[2]) // force unlock
	everybody["mutexdash"] = may{true, true, false}
	look()
}

// TestHandbookPermissionsSuffice runs those of docs/operations.md against an etcd without users. The password stays
// between the file and etcd.
func TestHandbookPermissionsSuffice(t *testing.T) {
	etcd := etcdtest.Start(t)
	_, page, _ := strings.Cut(read(t, repository+"/docs/operations.md"), "\n### Rights\n")
	page, _, _ = strings.Cut(page, "\n### ")
	blocks := commands(t, page, 3)
	etc := t.TempDir()
	write(t, filepath.Join(etc, "root.password"), "secret\n")
	environment := []string{"ETCDCTL_ENDPOINTS=" + etcd.Endpoint()}
	runs(t, etc, environment, blocks[:2]...)
	environment = append(environment, "ETCDCTL_USER=root", "ETCDCTL_PASSWORD=secret")
	here := strings.NewReplacer("/etc/unlocker", etc, "-g unlocker", "-g "+fmt.Sprint(os.Getgid())).Replace(blocks[2])
	seen := runs(t, etc, environment, here)

	file := filepath.Join(etc, "unlocker.password")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file of the password has the mode %v, %v", info.Mode(), err)
	}
	password := strings.TrimSpace(read(t, file))
	if len(password) < 32 || strings.Contains(seen, password) || strings.Contains(seen, "secret") {
		t.Errorf("the password %q, and the commands were\n%s", password, seen)
	}
	endpoints := []string{etcd.Endpoint()}
	may{true, true, false}.check(t, "unlocker", clientv3.Config{Endpoints: endpoints, Username: "unlocker",
		Password: password})
	may{true, true, true}.check(t, "root", clientv3.Config{Endpoints: endpoints, Username: "root", Password: "secret"})
	may{}.check(t, "nobody", clientv3.Config{Endpoints: endpoints})
}

// TestHowToForRolesAndTLSWorks runs docs/howto/etcd-roles-and-tls.md: its certificates are good for what they are
// made for, and with certificates like them each user sees what the page shows.
func TestHowToForRolesAndTLSWorks(t *testing.T) {
	page := read(t, repository+"/docs/howto/etcd-roles-and-tls.md")
	blocks := commands(t, page, 6)
	// runs wants to see an etcdctl, too.
	runs(t, t.TempDir(), nil, blocks[0]+`
etcdctl version
openssl verify -CAfile ca.crt -purpose sslserver etcd-1.crt
openssl verify -CAfile ca.crt -purpose sslclient root.crt unlocker.crt mutexdash.crt billing.crt`)

	etcd := etcdtest.Start(t, etcdtest.ClientCerts())
	directory := t.TempDir()
	write(t, filepath.Join(directory, "ca.crt"), read(t, etcd.CA().File()))
	for _, user := range []string{"root", "unlocker", "mutexdash", "billing"} {
		cert, key := etcd.CA().Issue(t, user)
		write(t, filepath.Join(directory, user+".crt"), read(t, cert))
		write(t, filepath.Join(directory, user+".key"), read(t, key))
	}
	here := strings.NewReplacer("https://localhost:2379", etcd.Endpoint())
	runs(t, directory, nil, here.Replace(blocks[2]))

	shown := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(shown) != 3 {
		t.Fatalf("the page shows %d outputs", len(shown))
	}
	tools := t.TempDir()
	proctest.Must(t, os.Symlink(*etcdctl, filepath.Join(tools, "etcdctl")))
	for i, block := range blocks[3:] {
		script := exec.CommandContext(t.Context(), "bash", "-c", block)
		script.Dir = directory
		script.Env = []string{"PATH=" + programs.Dir + ":" + tools + ":" + os.Getenv("PATH"),
			"ETCDCTL_ENDPOINTS=" + etcd.Endpoint(), "ETCDCTL_CACERT=ca.crt"}
		out, _ := script.CombinedOutput() // some of the commands are there to be refused
		for line := range strings.Lines(here.Replace(shown[i][1])) {
			if line != "…\n" && !strings.Contains(string(out), line) {
				t.Errorf("%s\nprints\n%s\nwithout %q", block, out, line)
			}
		}
	}
}

// commands are the blocks of a page that are to be run.
func commands(t *testing.T, page string, many int) (blocks []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) != many {
		t.Fatalf("%d blocks of commands, want %d", len(blocks), many)
	}
	return blocks
}

// runs runs blocks of commands in a directory, and returns the arguments of every etcdctl, as everybody on the machine
// sees them.
func runs(t *testing.T, directory string, environment []string, blocks ...string) string {
	t.Helper()
	path := t.TempDir()
	seen := filepath.Join(path, "seen")
	write(t, seen, "")
	wrapper := fmt.Sprintf("#!/bin/sh\nprintf '%%s ' \"$@\" >> %s\nexec %s \"$@\"\n", seen, *etcdctl)
	proctest.Must(t, os.WriteFile(filepath.Join(path, "etcdctl"), []byte(wrapper), 0o700))
	for _, block := range blocks {
		script := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block)
		script.Dir = directory
		script.Env = append([]string{"PATH=" + path + ":" + programs.Dir + ":" + os.Getenv("PATH")}, environment...)
		if out, err := script.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, block)
		}
	}
	return read(t, seen)
}

// may is what somebody is allowed.
type may struct{ read, write, elsewhere bool }

// check tries all of it.
func (m may) check(t *testing.T, who string, config clientv3.Config) {
	t.Helper()
	config.Logger = zap.NewNop()
	c, err := clientv3.New(config)
	proctest.Must(t, err)
	defer c.Close()
	_, readErr := c.Get(t.Context(), "/mutexes/", clientv3.WithPrefix())
	_, writeErr := c.Put(t.Context(), "/mutexes/"+who, "")
	_, elsewhereErr := c.Put(t.Context(), "/mutexes", "")
	for what, got := range map[string]struct {
		err error
		may bool
	}{"read": {readErr, m.read}, "write": {writeErr, m.write}, "write elsewhere": {elsewhereErr, m.elsewhere}} {
		denied := got.err != nil && (errors.Is(got.err, rpctypes.ErrUserEmpty) ||
			strings.Contains(got.err.Error(), "permission denied"))
		if (got.err == nil) != got.may || denied == got.may {
			t.Errorf("%s: %s: %v, want it allowed: %v", who, what, got.err, got.may)
		}
	}
}
