package cli_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The command writes the time into a file while it runs, and can only be ended by KILL.
const deaf = `trap "" TERM
echo ready
while true; do date +%s.%N >beat.new; mv beat.new beat; sleep 0.02; done`

// background starts mutexctl against an etcd, in a directory of its own.
func background(t *testing.T, endpoint string, args ...string) (p *proctest.Process, dir string) {
	t.Helper()
	cmd := exec.Command("mutexctl", args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+endpoint)
	return proctest.Start(t, cmd), cmd.Dir
}

func TestPartitionedCommandEndsBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	run, dir := background(t, proxy.Endpoint(), "run", "l", "--wait", "120s", "--auto-unlock-after", "4s", "--grace",
		"300ms", "--etcd.request-timeout", "500ms", "--", "sh", "-c", deaf)
	beat := filepath.Join(dir, "beat")
	proctest.Eventually(t, "the command runs", func() error {
		_, err := os.Stat(beat)
		return err
	})
	proxy.Stall()
	if code := run.Wait(t); code != 5 || !strings.Contains(run.Output(), `lock "l" may be lost`) {
		t.Errorf("run ended with status %d, want 5: %s", code, run.Output())
	}
	layout := protocol.DefaultLayout()
	doc, _, err := lockstore.New(server.Client(t), layout).ReadRecord(context.Background(), "l")
	if err != nil || doc.Token == 0 {
		t.Fatalf("the lock that could not be released is gone: %v", err)
	}
	text, err := os.ReadFile(beat)
	proctest.Must(t, err)
	last, err := metadata.ParseTime(strings.TrimSpace(string(text)))
	proctest.Must(t, err)
	if !last.Before(doc.AutoUnlockAt) {
		t.Errorf("the command lived at %v, the lock could be another's from %v", last, doc.AutoUnlockAt)
	}
	t.Logf("the command ended %v before the auto-unlock", doc.AutoUnlockAt.Sub(last))
}

// What a waiter knew of the holder is old when etcd fell silent meanwhile.
func TestWaiterThatIsCutOffNamesEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	holder, _ := background(t, server.Endpoint(), "run", "l", "--", "sh", "-c", "echo held; sleep 60")
	holder.Prints(t, "held")
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	flags := []string{"l", "--wait", "4s", "--etcd.request-timeout", "500ms"}
	run, _ := background(t, proxy.Endpoint(), append(append([]string{"run"}, flags...), "--", "true")...)
	wait, _ := background(t, proxy.Endpoint(), append([]string{"wait"}, flags...)...)
	run.Prints(t, "position 1")
	wait.Prints(t, "held by")
	proxy.Stall()
	for _, p := range []*proctest.Process{run, wait} {
		if code := p.Wait(t); code != 1 || !strings.Contains(p.Output(), "gave up waiting: etcd ") {
			t.Errorf("status %d, want 1: %s", code, p.Output())
		}
	}
}

// An etcd that refuses connections is waited for like a holder: the command runs once it is back.
func TestRunWaitsForAnUnreachableEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	server.Stop()
	run, _ := background(t, server.Endpoint(), "run", "l", "--wait", "120s", "--", "true")
	run.Prints(t, "refused")
	server.Restart(t)
	if code := run.Wait(t); code != 0 || strings.Count(run.Output(), "\n") != 1 ||
		!strings.Contains(run.Output(), "mutexctl run: waiting: etcd is unreachable") {
		t.Errorf("run ended with status %d and said:\n%s", code, run.Output())
	}
}

// A failed command that may be run again is reported if its tick stays used up, because etcd does not answer.
func TestRunReportsATickThatIsNotGivenBack(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	const fails = "echo ready; until test -e end; do sleep 0.02; done; exit 7"
	run, dir := background(t, server.Endpoint(), "run", "l", "--once-per", "1h", "--retry-on-error",
		"--etcd.request-timeout", "300ms", "--", "sh", "-c", fails)
	run.Prints(t, "ready")
	server.Stop()
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
	if code := run.Wait(t); code != 7 || !strings.Contains(run.Output(), "the tick was not given back") {
		t.Errorf("run ended with status %d and said:\n%s", code, run.Output())
	}
}

// check runs mutexctl check against an etcd.
func check(t *testing.T, endpoint string, args ...string) (status int, said string) {
	t.Helper()
	cmd := exec.Command("mutexctl", append([]string{"check"}, args...)...)
	cmd.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+endpoint)
	r := proctest.Run(t, cmd)
	return r.Code, r.Stdout
}

func TestSilentEtcdIsUnknownInNagios(t *testing.T) {
	t.Parallel()
	proxy := etcdtest.NewProxy(t, etcdtest.Start(t).Endpoint())
	proxy.Stall()
	began := time.Now()
	status, said := check(t, proxy.Endpoint(), "--timeout", "300ms")
	if want := "LOCKS UNKNOWN: etcd did not answer within 300ms\n"; status != 3 || said != want {
		t.Errorf("status %d: %q, want 3 and %q", status, said, want)
	}
	if took := time.Since(began); took > proctest.Timeout/2 {
		t.Errorf("it took %v", took)
	}
}

func TestCheckReportsAnOutdatedEtcd(t *testing.T) {
	t.Parallel()
	old, err := proto.Marshal(&pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.5.21"})
	proctest.Must(t, err)
	var relay *etcdtest.Relay
	relay = etcdtest.NewRelay(t, etcdtest.Start(t).Endpoint(),
		func(ctx context.Context, method string, from grpc.ServerStream) error {
			if strings.HasSuffix(method, "/Status") {
				return from.SendMsg(&etcdtest.Message{Bytes: old})
			}
			return relay.Pass(ctx, method, from)
		}, http.NotFoundHandler())
	const want = "LOCKS WARNING: etcd 3.5.21 may answer reads with outdated data: use at least 3.5.28, 3.6.9 or 3.7. " +
		"0 locks on time. |"
	if status, said := check(t, relay.Addr, "--no-unlocker"); status != 1 || !strings.HasPrefix(said, want) {
		t.Errorf("status %d: %s", status, said)
	}
}

// Waiting for a lock to become free survives a restart of etcd.
func TestWaitOutlastsARestartOfEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := server.Client(t)
	layout := protocol.DefaultLayout()
	key := layout.Field("l", lockrecord.FieldUUID)
	etcdtest.Put(t, client, key, "11111111-2222-4333-8444-555555555555")
	wait, _ := background(t, server.Endpoint(), "wait", "l")
	wait.Prints(t, "waiting: l is held")
	server.Stop()
	server.Restart(t)
	if !wait.Running() {
		t.Fatalf("it ended while the lock was held: %s", wait.Output())
	}
	_, err := client.Delete(t.Context(), key)
	proctest.Must(t, err)
	if code := wait.Wait(t); code != 0 {
		t.Errorf("it ended with status %d", code)
	}
}
