//go:build packages

package packages

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestHowToForSystemdRunsAsWritten types all commands of docs/howto/systemd.md into one shell of a machine that has
// what the page wants: an etcd with TLS, and the packages in the directory. Only the endpoint differs.
func TestHowToForSystemdRunsAsWritten(t *testing.T) {
	page, err := os.ReadFile(repository + "/docs/howto/systemd.md")
	proctest.Must(t, err)
	found := regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?").FindAllStringSubmatch(string(page), -1)
	if len(found) != 9 {
		t.Fatalf("the page has %d blocks of commands", len(found))
	}
	m := boot(t)
	m.etcd(t, "-tls /root")
	m.run(t, "cp /root/cert.pem /root/ca.crt && cp /packages/new/*.deb /root/")

	here := strings.NewReplacer("https://etcd-1.example:2379", "https://127.0.0.1:2379",
		"--retry 10 ", "--retry 100 ", "sleep 10\n", // a busy machine takes longer
		"until mutexctl list | grep '^alerting'; do sleep 0.2; done\n")
	var script strings.Builder
	script.WriteString("cd /root\n")
	for _, block := range found {
		script.WriteString("echo '== next'\n")
		script.WriteString(here.Replace(block[1]))
	}
	printed := strings.Split(m.run(t, "{\n"+script.String()+"kill %1\n} 2>&1"), "== next\n")[1:]
	for i, block := range found {
		if block[2] != "" && !proctest.Shows(block[2], printed[i]) {
			t.Errorf("the commands\n%s\nprint\n%s\nand the page shows\n%s", block[1], printed[i], block[2])
		}
	}
}
