package etcdconn_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestClientStartsWithoutEtcdAndRecovers(t *testing.T) {
	server := start(t, etcdtest.Auth())
	server.AddUser(t, "u", "secret", "/m/", etcdtest.ReadWrite)
	server.Stop()
	start := time.Now()
	c := connect(t, as(server, "u", "secret"))
	if took := time.Since(start); took > 4*time.Second { // less than the dial timeout
		t.Errorf("New waited %v for an etcd that is away", took)
	}
	class := etcdconn.Timeout
	for class == etcdconn.Timeout { // on a busy machine it may not have been tried yet
		class = etcdconn.Classify(etcdconn.CheckAccess(limit(t, time.Second), c, "/m/"))
	}
	if class != etcdconn.Unreachable {
		t.Errorf("an etcd that is away is %q", class)
	}
	server.Restart(t)
	works(t, c)
}

func TestCallsAndStreamsOutliveTheirToken(t *testing.T) {
	server := start(t, etcdtest.Auth())
	server.AddUser(t, "u", "secret", "/m/", etcdtest.ReadWrite)
	file := write(t, "secret\n")
	settings := as(server, "u", "")
	settings.PasswordFile = file
	c := connect(t, settings)
	watches := func() {
		t.Helper()
		works(t, c)
		ctx, cancel := context.WithCancel(limit(t, proctest.Timeout))
		defer cancel()
		if w := <-c.Watch(ctx, "/m/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()); w.Err() != nil {
			t.Fatal(w.Err())
		}
	}
	watches() // with the first token
	for _, password := range []string{"secret", "new"} {
		proctest.Must(t, os.WriteFile(file, []byte(password), 0o600))
		_, err := server.Client(t).UserChangePassword(limit(t, proctest.Timeout), "u", password)
		proctest.Must(t, err) // etcd forgets the user's tokens, as when they expire
		watches()
	}
}

func TestUserIsIgnoredWithoutAuth(t *testing.T) {
	server := start(t)
	works(t, connect(t, as(server, "u", "secret")))
}

func TestRotatedCertificatesAreUsedForTheNextConnection(t *testing.T) {
	server := start(t, etcdtest.ClientCerts())
	stranger := proctest.NewCA(t)
	wrongCert, wrongKey := stranger.Issue(t, "u")
	rightCert, rightKey := server.CA().Issue(t, "u")
	settings := etcdconn.Settings{Endpoints: []string{server.Endpoint()}, CACert: copyOf(t, stranger.File()),
		Cert: copyOf(t, wrongCert), Key: copyOf(t, wrongKey)}
	c := connect(t, settings)
	err := etcdconn.CheckAccess(limit(t, proctest.Timeout), c, "/m/")
	if class := etcdconn.Classify(err); class != etcdconn.Certificate {
		t.Fatalf("before the rotation: %q", class)
	}
	copyTo(t, settings.CACert, server.CA().File())
	copyTo(t, settings.Cert, rightCert)
	copyTo(t, settings.Key, rightKey)
	works(t, c)
}

func TestTransactionIsSentOnce(t *testing.T) {
	server := start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	c := connect(t, etcdconn.Settings{Endpoints: []string{proxy.Endpoint()}})
	works(t, c)
	direct := server.Client(t)
	versions := func() int64 {
		r, err := direct.Get(limit(t, proctest.Timeout), "/m/a")
		proctest.Must(t, err)
		return r.Kvs[0].Version
	}
	proxy.DropAnswers()
	put := proctest.Go(t, func(ctx context.Context) error {
		_, err := c.Put(ctx, "/m/a", "1")
		return err
	})
	etcdtest.Eventually(t, "the put", func() bool { return versions() > 1 })
	proxy.Heal() // breaks the connection
	if err := put.Wait(t); etcdconn.Classify(err) != etcdconn.Unreachable {
		t.Errorf("a put whose answer is lost: %v", err)
	}
	if v := versions(); v != 2 {
		t.Errorf("the key was written %d times, want 2", v)
	}
}

func TestDangerousSettingsCauseWarnings(t *testing.T) {
	for text, s := range map[string]etcdconn.Settings{
		"not verified": {Endpoints: []string{"https://127.0.0.1:1"}, InsecureSkipVerify: true},
		"without TLS":  {Endpoints: []string{"http://127.0.0.1:1"}, User: "u", Password: "p"},
	} {
		var log bytes.Buffer
		c, err := etcdconn.New(s, zerolog.New(&log))
		proctest.Must(t, err)
		c.Close()
		if !strings.Contains(log.String(), text) || !strings.Contains(log.String(), `"level":"warn"`) {
			t.Errorf("the log does not warn %q: %s", text, &log)
		}
	}
}

// start starts an etcd for a parallel test.
func start(t *testing.T, opts ...etcdtest.Option) *etcdtest.Server {
	t.Parallel()
	return etcdtest.Start(t, opts...)
}

// as are the settings of a user.
func as(s *etcdtest.Server, user, password string) etcdconn.Settings {
	return etcdconn.Settings{Endpoints: []string{s.Endpoint()}, User: user, Password: password}
}

// works writes a key.
func works(t *testing.T, c *clientv3.Client) {
	t.Helper()
	_, err := c.Put(limit(t, proctest.Timeout), "/m/a", "1")
	proctest.Must(t, err)
}

func connect(t *testing.T, s etcdconn.Settings, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := etcdconn.New(s, zerolog.Nop(), opts...)
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func limit(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	proctest.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func copyOf(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	copyTo(t, to, from)
	return to
}

func copyTo(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	proctest.Must(t, err)
}

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestProblemIsLoggedOnceUntilItIsOver(t *testing.T) {
	server := start(t)
	log := &proctest.Log{}
	c := connect(t, as(server, "", ""))
	problem := &etcdconn.FaultMonitor{Etcd: c, Prefix: "/m/", IsUsable: func() bool { return false },
		Log: zerolog.New(log)}
	problem.SetInterval(50 * time.Millisecond)
	proctest.Go(t, problem.Run)

	for range 2 {
		server.Stop()
		etcdtest.Eventually(t, "problem", func() bool {
			_, cause := problem.Fault()
			return strings.Contains(cause, "etcd is unreachable")
		})
		time.Sleep(200 * time.Millisecond) // looks a few times more, and has nothing new to say
		server.Restart(t)
		etcdtest.Eventually(t, "the end of it", func() bool {
			_, cause := problem.Fault()
			return cause == ""
		})
	}

	// On a busy machine, etcd may be away a third time.
	away := 0
	for outage := range strings.SplitSeq(log.String(), "can be used again") {
		n := strings.Count(outage, `"class":"unreachable"`)
		if n > 1 {
			t.Errorf("the log says %d times that etcd is away, want once:\n%s", n, outage)
		}
		away += n
	}
	if away < 2 {
		t.Errorf("the log tells of %d outages, want 2:\n%s", away, log)
	}
}
