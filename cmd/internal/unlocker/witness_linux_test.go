package unlocker_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// startWitness runs a witness until the test ends, and returns the address of its metrics and probes.
func startWitness(t testing.TB, args ...string) string {
	t.Helper()
	address := proctest.FreeAddr(t)
	args = append([]string{"witness", "--web.listen-address=" + address, "--web.shutdown-delay=0s",
		"--log.level=error"}, args...)
	proctest.Go(t, func(ctx context.Context) error {
		return flags.Execute(ctx, flags.WithoutEnvironment(unlocker.Command()), args)
	})
	return address
}

// The host name of a pod is another one after each upgrade; the machine is the same.
func TestBootsAreStoredByMachineName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "boots.json")
	endpoint := etcdtest.Start(t).Endpoint()
	start := func() {
		address := startWitness(t, "--etcd.endpoints="+endpoint, "--witness.state-dir="+dir,
			"--witness.hostname=node-3")
		proctest.Answers(t, "http://"+address+"/readyz", http.StatusOK)
	}
	start()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"hostname":"node-3"`) {
		t.Fatalf("%s, %v", text, err)
	}
	const earlier = "aaaaaaaa-0000-4000-8000-000000000001"
	text = []byte(strings.Replace(string(text), `"boots":[`, `"boots":["`+earlier+`",`, 1))
	proctest.Must(t, os.WriteFile(file, text, 0o600))
	start()
	if text, err = os.ReadFile(file); err != nil || !strings.Contains(string(text), earlier) {
		t.Errorf("the earlier boot is forgotten: %s, %v", text, err)
	}
}

func TestWitnessReportsWhyEtcdCannotBeUsed(t *testing.T) {
	t.Parallel()
	address := startWitness(t, "--etcd.endpoints="+proctest.FreeAddr(t))
	proctest.Answers(t, "http://"+address+"/readyz", http.StatusServiceUnavailable, "connect: connection refused")
}

func TestBadWitnessSettingsAreReportedInOneSentence(t *testing.T) {
	broken := t.TempDir()
	proctest.Must(t, os.WriteFile(filepath.Join(broken, "boots.json"), []byte("{"), 0o600))
	for want, args := range map[string][]string{
		"no such file or directory":                 {"--witness.state-dir=" + filepath.Join(broken, "missing")},
		"is not what a witness wrote: delete it":    {"--witness.state-dir=" + broken},
		"is not of the form host:port":              {"--web.listen-address=1"},
		"there is no flag --policy":                 {"--policy=auto-unlock"},
		`unknown command "x" for "unlocker witness`: {"x"},
	} {
		cmd := flags.WithoutEnvironment(unlocker.Command())
		cmd.SetErr(&bytes.Buffer{})
		err := flags.Execute(t.Context(), cmd, append([]string{"witness"}, args...))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
