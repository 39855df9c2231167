package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The command writes the time into a file as long as it lives, and can only be ended by KILL.
const deaf = `trap "" TERM
echo ready
while true; do date +%s.%N >beat.new; mv beat.new beat; sleep 0.02; done`

func TestACommandThatIsCutOffFromEtcdEndsBeforeAnotherCanGetTheLock(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	dir := t.TempDir()
	var stderr bytes.Buffer
	run := exec.Command("mutexctl", "run", "l", "--auto-unlock-after", "3s", "--grace", "300ms", "--", "sh", "-c", deaf)
	run.Dir = dir
	run.Stderr = &stderr
	run.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+proxy.Endpoint(), "MUTEXCTL_ETCD_REQUEST_TIMEOUT=500ms")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	beat := filepath.Join(dir, "beat")
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(beat); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the command did not start: %s", &stderr)
		}
	}
	proxy.Stall()
	err := run.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("run ended with %v, want status 5", err)
	}
	layout, _ := protocol.NewLayout(protocol.DefaultPrefix)
	doc, _, err := lockstore.New(server.Client(t), layout).Get(context.Background(), "l")
	if err != nil || doc.Token == 0 {
		t.Fatalf("the lock that could not be released is gone: %v", err)
	}
	text, err := os.ReadFile(beat)
	if err != nil {
		t.Fatal(err)
	}
	last, err := metadata.ParseTime(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !last.Before(doc.AutoUnlockAt) {
		t.Errorf("the command lived at %v, the lock could be another's from %v", last, doc.AutoUnlockAt)
	}
	t.Logf("the command ended %v before the auto-unlock", doc.AutoUnlockAt.Sub(last))
	if !strings.Contains(stderr.String(), `lock "l" may be lost`) {
		t.Errorf("stderr does not say so: %s", &stderr)
	}
}

// An etcd that refuses connections is waited for as a holder is: the command runs when it is back.
func TestRunWaitsForAnEtcdThatIsAway(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Stop()
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	run := exec.Command("mutexctl", "run", "l", "--wait", "120s", "--", "true")
	run.Stderr = said
	run.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+server.Endpoint())
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(said.Name()); err == nil && strings.Contains(string(text), "refused") {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it does not say that it waits")
		}
	}
	server.Restart(t)
	err = run.Wait()
	text, _ := os.ReadFile(said.Name())
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text),
		"mutexctl run: waiting: etcd is unreachable") {
		t.Errorf("run ended with %v and said:\n%s", err, text)
	}
}

func TestAnEtcdThatDoesNotAnswerIsUnknownToNagios(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	proxy.Stall()
	check := exec.Command("mutexctl", "check", "--timeout", "300ms")
	check.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+proxy.Endpoint())
	began := time.Now()
	said, err := check.Output()
	exit, isExit := errors.AsType[*exec.ExitError](err)
	if !isExit || exit.ExitCode() != 3 {
		t.Errorf("check ended with %v, want status 3", err)
	}
	if want := "LOCKS UNKNOWN: etcd did not answer within 300ms\n"; string(said) != want {
		t.Errorf("check says %q, want %q", said, want)
	}
	if took := time.Since(began); took > enough/2 {
		t.Errorf("it took %v", took)
	}
}

// Waiting for a lock to become free survives a restart of etcd.
func TestWaitOutlastsARestartOfEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := server.Client(t)
	layout, _ := protocol.NewLayout(protocol.DefaultPrefix)
	key := layout.Field("l", metadata.FieldUUID)
	if _, err := client.Put(t.Context(), key, "11111111-2222-4333-8444-555555555555"); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	wait := exec.Command("mutexctl", "wait", "l")
	wait.Stderr = said
	wait.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+server.Endpoint())
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wait.Wait() }()
	for until := time.Now().Add(enough); ; time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(said.Name()); strings.Contains(string(text), "waiting: l is held") {
			break
		}
		if time.Now().After(until) {
			t.Fatal("it does not wait")
		}
	}
	server.Stop()
	server.Restart(t)
	select {
	case err := <-ended:
		t.Fatalf("it ended while the lock was held: %v", err)
	default:
	}
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(enough):
		_ = wait.Process.Kill()
		t.Error("it goes on waiting for a lock that is free")
	}
}
