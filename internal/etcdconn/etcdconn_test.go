package etcdconn_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestClientIsMadeAndRecoversWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Auth())
	server.AddUser(t, "u", "secret", "/m/", etcdtest.ReadWrite)
	server.Stop()
	start := time.Now()
	c := connect(t, etcdconn.Settings{Endpoints: []string{server.Endpoint()}, User: "u", Password: "secret"})
	if took := time.Since(start); took > 4*time.Second { // less than the dial timeout
		t.Errorf("New waited %v for an etcd that is away", took)
	}
	class := etcdconn.Timeout
	for class == etcdconn.Timeout { // on a busy machine it may not have been tried yet
		class = etcdconn.Classify(etcdconn.Prove(limit(t, time.Second), c, "/m/"))
	}
	if class != etcdconn.Unreachable {
		t.Errorf("an etcd that is away is %q", class)
	}
	server.Restart(t)
	if _, err := c.Get(limit(t, 20*time.Second), "/m/a"); err != nil {
		t.Errorf("after etcd came back: %v", err)
	}
}

func TestCallsAndStreamsOutliveTheirToken(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Auth(), etcdtest.TokenTTL(1))
	server.AddUser(t, "u", "secret", "/m/", etcdtest.ReadWrite)
	file := write(t, "secret\n")
	c := connect(t, etcdconn.Settings{Endpoints: []string{server.Endpoint()}, User: "u", PasswordFile: file})
	works := func(when string) {
		t.Helper()
		if _, err := c.Put(limit(t, 10*time.Second), "/m/a", "1"); err != nil {
			t.Fatalf("a put %s: %v", when, err)
		}
		ctx, cancel := context.WithCancel(limit(t, 10*time.Second))
		defer cancel()
		if w := <-c.Watch(ctx, "/m/", clientv3.WithPrefix(), clientv3.WithCreatedNotify()); w.Err() != nil {
			t.Fatalf("a watch %s: %v", when, w.Err())
		}
	}
	works("with the first token")
	untilRefused(t, server)
	works("after the token ran out")
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Client(t).UserChangePassword(limit(t, 10*time.Second), "u", "new"); err != nil {
		t.Fatal(err)
	}
	works("after the password changed")
}

// untilRefused waits until a token issued before this call has expired.
func untilRefused(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	witness, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server.Endpoint()}, Token: token(t, server), Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer witness.Close()
	for {
		_, err := witness.Get(limit(t, 10*time.Second), "/m/a")
		if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // a use prolongs the token
	}
}

func token(t *testing.T, server *etcdtest.Server) string {
	t.Helper()
	r, err := server.Client(t).Authenticate(limit(t, 10*time.Second), etcdtest.RootUser, etcdtest.RootPassword)
	if err != nil {
		t.Fatal(err)
	}
	return r.Token
}

func TestUserIsNoObstacleWithoutAuth(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	c := connect(t, etcdconn.Settings{Endpoints: []string{server.Endpoint()}, User: "u", Password: "secret"})
	if _, err := c.Put(limit(t, 10*time.Second), "a", "1"); err != nil {
		t.Error(err)
	}
}

func TestRotatedCertificatesAreUsedForTheNextConnection(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.ClientCerts())
	stranger := etcdtest.NewCA(t)
	wrongCert, wrongKey := stranger.Issue(t, "u")
	rightCert, rightKey := server.CA().Issue(t, "u")
	ca := copyOf(t, stranger.File())
	cert := copyOf(t, wrongCert)
	key := copyOf(t, wrongKey)
	c := connect(t, etcdconn.Settings{Endpoints: []string{server.Endpoint()}, CACert: ca, Cert: cert, Key: key})
	if class := etcdconn.Classify(etcdconn.Prove(limit(t, 10*time.Second), c, "/m/")); class != etcdconn.Certificate {
		t.Fatalf("before the rotation: %q", class)
	}
	for to, from := range map[string]string{ca: server.CA().File(), cert: rightCert, key: rightKey} {
		copyTo(t, to, from)
	}
	if _, err := c.Get(limit(t, 20*time.Second), "a"); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
}

func TestOnlyConnectionsThatWereMadeWithOtherFilesAreRenewed(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.ClientCerts())
	first, key := server.CA().Issue(t, "u")
	settings := etcdconn.Settings{Endpoints: []string{server.Endpoint()}, CACert: server.CA().File(),
		Cert: copyOf(t, first), Key: copyOf(t, key)}
	connections := etcdconn.NewConnections(settings)
	c, err := etcdconn.New(settings, zerolog.Nop(), connections.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, rotated := range []bool{false, true} {
		if _, err := c.Get(limit(t, 20*time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		if rotated {
			next, key := server.CA().Issue(t, "u")
			copyTo(t, settings.Cert, next)
			copyTo(t, settings.Key, key)
		}
		if n := connections.Renew(); (n > 0) != rotated {
			t.Errorf("%d connections are renewed; the certificate is another one: %v", n, rotated)
		}
	}
	if _, err := c.Get(limit(t, 20*time.Second), "a"); err != nil {
		t.Error(err)
	}
}

func TestTransactionIsSentOnce(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Endpoint())
	c := connect(t, etcdconn.Settings{Endpoints: []string{proxy.Endpoint()}})
	if _, err := c.Put(limit(t, 10*time.Second), "a", "0"); err != nil {
		t.Fatal(err)
	}
	proxy.DropAnswers()
	if _, err := c.Put(limit(t, 300*time.Millisecond), "a", "1"); etcdconn.Classify(err) != etcdconn.Timeout {
		t.Errorf("a put whose answer is lost: %v", err)
	}
	proxy.Heal()
	r, err := server.Client(t).Get(limit(t, 10*time.Second), "a")
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Kvs[0].Version; v != 2 {
		t.Errorf("the key was written %d times, want 2", v)
	}
}

func TestDangerousSettingsAreWarnedOf(t *testing.T) {
	for text, s := range map[string]etcdconn.Settings{
		"not verified": {Endpoints: []string{"https://127.0.0.1:1"}, InsecureSkipVerify: true},
		"without TLS":  {Endpoints: []string{"http://127.0.0.1:1"}, User: "u", Password: "p"},
	} {
		var log bytes.Buffer
		c, err := etcdconn.New(s, zerolog.New(&log))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if !strings.Contains(log.String(), text) || !strings.Contains(log.String(), `"level":"warn"`) {
			t.Errorf("the log does not warn %q: %s", text, &log)
		}
	}
}

func connect(t *testing.T, s etcdconn.Settings) *clientv3.Client {
	t.Helper()
	c, err := etcdconn.New(s, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
}

// deadAddr is an address where nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestTroubleIsToldOnceUntilItIsOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	log := &proctest.Log{}
	count := func(text string) int { return strings.Count(log.String(), text) }
	c, err := etcdconn.New(etcdconn.Settings{Endpoints: []string{server.Endpoint()}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	trouble := &etcdconn.Trouble{Etcd: c, Prefix: "/m/", Well: func() bool { return false }, Log: zerolog.New(log)}
	trouble.Every(50 * time.Millisecond)
	proctest.Go(t, trouble.Run)

	for range 2 {
		told := count(`"class":"unreachable"`)
		server.Stop()
		until(t, func() bool { return strings.Contains(trouble.Cause(), "etcd is unreachable") })
		time.Sleep(200 * time.Millisecond) // looks a few times more, and has nothing new to say
		if n := count(`"class":"unreachable"`); n != told+1 {
			t.Errorf("the log says %d times that etcd is away, want once", n-told)
		}
		over := count("can be used again")
		server.Restart(t)
		until(t, func() bool { return trouble.Cause() == "" && count("can be used again") == over+1 })
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
