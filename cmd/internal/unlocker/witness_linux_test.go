package unlocker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// startHolder starts a process that holds the lock, and returns it with the uuid of its hold.
func startHolder(t testing.TB, endpoint, lock string) (*proctest.Process, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, lock)
	cmd.Env = append(os.Environ(), envHolder+"="+endpoint)
	p := proctest.Start(t, cmd)
	var uuid string
	proctest.Eventually(t, "the hold", func() error {
		if uuid = strings.TrimSpace(p.Output()); len(uuid) != 36 {
			return fmt.Errorf("it said %q", uuid)
		}
		return nil
	})
	return p, uuid
}

// startWitness runs a witness until the test ends, and returns the address of its metrics.
func startWitness(t testing.TB, args ...string) string {
	t.Helper()
	address := proctest.FreeAddr(t)
	args = append([]string{"witness", "--web.listen-address=" + address, "--web.shutdown-delay=0s",
		"--log.level=error"}, args...)
	proctest.Go(t, func(ctx context.Context) error {
		return flags.Execute(ctx, flags.WithoutEnvironment(unlocker.Command()), args)
	})
	proctest.Eventually(t, "readiness", func() error {
		code, body, err := proctest.Get(http.DefaultClient, "http://"+address+"/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	return address
}

// deaths delivers the statements about holders as etcd sends them.
func deaths(t testing.TB, etcd *clientv3.Client) <-chan metadata.Statement {
	t.Helper()
	layout := protocol.DefaultLayout()
	watch := etcd.Watch(t.Context(), layout.Deaths(), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	all := make(chan metadata.Statement)
	go func() {
		for answer := range watch {
			for _, e := range answer.Events {
				if s, err := protocol.Unmarshal[metadata.Statement](e.Kv.Value); err == nil {
					all <- s
				}
			}
		}
	}()
	return all
}

// kill kills a holder and returns what is stated, and after what time.
func kill(t testing.TB, p *proctest.Process, stated <-chan metadata.Statement) (metadata.Statement, time.Duration) {
	t.Helper()
	killed := time.Now()
	p.Kill()
	select {
	case s := <-stated:
		return s, time.Since(killed)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is stated")
	}
	return metadata.Statement{}, 0
}

func TestAHolderThatWasKilledIsStatedDead(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	address := startWitness(t, "--etcd.endpoints="+server.Endpoint(), "--witness.state-dir="+t.TempDir())
	stated := deaths(t, etcd)
	for _, lock := range []string{"nightly", "a/b"} {
		p, uuid := startHolder(t, server.Endpoint(), lock)
		s, _ := kill(t, p, stated)
		if s.Lock != lock || s.UUID != uuid || s.Cause != metadata.CauseProcessEnded ||
			s.Signal != "SIGKILL" && s.Signal != "" || // the kernel knows once we have reaped it
			s.How == "" || s.EndedAt.IsZero() {
			t.Errorf("%s, %s: stated is %+v", lock, uuid, s)
		}
	}
	// A statement is counted when etcd has confirmed it, which its watch may show earlier.
	etcdtest.Eventually(t, "both statements in the metrics", func() bool {
		_, body, err := proctest.Get(http.DefaultClient, "http://"+address+"/metrics")
		return err == nil && strings.Contains(body, `unlocker_witness_statements_total{cause="process_ended"} 2`)
	})
}

// The host name of a pod is another one after each upgrade; the machine is the same.
func TestTheBootsOfAMachineAreRememberedUnderItsName(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "boots.json")
	endpoint := etcdtest.Start(t).Endpoint()
	startWitness(t, "--etcd.endpoints="+endpoint, "--witness.state-dir="+dir, "--witness.hostname=node-3")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"hostname":"node-3"`) {
		t.Fatalf("%s, %v", text, err)
	}
	const earlier = "aaaaaaaa-0000-4000-8000-000000000001"
	text = []byte(strings.Replace(string(text), `"boots":[`, `"boots":["`+earlier+`",`, 1))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	startWitness(t, "--etcd.endpoints="+endpoint, "--witness.state-dir="+dir, "--witness.hostname=node-3")
	if text, err = os.ReadFile(file); err != nil || !strings.Contains(string(text), earlier) {
		t.Errorf("the earlier boot is forgotten: %s, %v", text, err)
	}
}

func TestAWitnessOfWrongSettingsSaysSoInASentence(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "boots.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
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
