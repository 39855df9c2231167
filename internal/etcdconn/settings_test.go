package etcdconn_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestBadSettingsAreRefused(t *testing.T) {
	t.Parallel()
	ca := proctest.NewCA(t)
	cert, key := ca.Issue(t, "u")
	_, otherKey := ca.Issue(t, "v")
	missing := filepath.Join(t.TempDir(), "missing")
	junk := write(t, "junk")
	empty := write(t, "\n")
	secret := write(t, "secret\n")
	endpoints := func(endpoints ...string) func(*etcdconn.Settings) {
		return func(s *etcdconn.Settings) { s.Endpoints = endpoints }
	}
	for says, change := range map[string]func(*etcdconn.Settings){
		"no etcd endpoint":                    endpoints(),
		`"" is not of the form host:port`:     endpoints(""),
		`"etcd" is not of the form host:port`: endpoints("etcd"),
		`":2379" is not of the form`:          endpoints(":2379"),
		"no valid port":                       endpoints("etcd:99999"),
		`the scheme "ftp"`:                    endpoints("ftp://etcd:2379"),
		"more than scheme, host and port":     endpoints("http://etcd:2379/v3"),
		"an etcd endpoint must not contain a user or password: give them as": endpoints("http://u:p@etcd:2379"),
		"is not a URL":               endpoints("http://[::1"),
		"differ in their scheme":     endpoints("https://a:1", "http://b:1"),
		"https://a:1 and b:1 differ": endpoints("https://a:1", "b:1"),
		"does not use TLS, but a CA certificate": func(s *etcdconn.Settings) {
			s.Endpoints = []string{"http://a:1"}
			s.CACert = ca.File()
		},
		"does not use TLS, but a server name": func(s *etcdconn.Settings) {
			s.Endpoints = []string{"http://a:1"}
			s.ServerName = "b"
		},
		"read the etcd CA certificate":        func(s *etcdconn.Settings) { s.CACert = missing },
		"no certificate in PEM form":          func(s *etcdconn.Settings) { s.CACert = junk },
		"without its key":                     func(s *etcdconn.Settings) { s.Cert = cert },
		"without its certificate":             func(s *etcdconn.Settings) { s.Key = key },
		"private key does not match":          func(s *etcdconn.Settings) { s.Cert, s.Key = cert, otherKey },
		"load the etcd client certificate":    func(s *etcdconn.Settings) { s.Cert, s.Key = missing, key },
		"has no password":                     func(s *etcdconn.Settings) { s.User = "u" },
		"password is given, but no user":      func(s *etcdconn.Settings) { s.Password = "p" },
		"password file is given, but no user": func(s *etcdconn.Settings) { s.PasswordFile = secret },
		"given twice": func(s *etcdconn.Settings) {
			s.User = "u"
			s.Password = "p"
			s.PasswordFile = secret
		},
		"read the etcd password": func(s *etcdconn.Settings) { s.User, s.PasswordFile = "u", missing },
		"is empty":               func(s *etcdconn.Settings) { s.User, s.PasswordFile = "u", empty },
	} {
		s := etcdconn.Defaults()
		change(&s)
		err := s.Check()
		if err == nil {
			t.Errorf("settings of which %q should be said are taken: %+v", says, s)
			continue
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("it says %q, want one sentence with %q", err, says)
		}
	}
}

func TestValidSettingsAreAccepted(t *testing.T) {
	t.Parallel()
	ca := proctest.NewCA(t)
	cert, key := ca.Issue(t, "u")
	for name, change := range map[string]func(*etcdconn.Settings){
		"the defaults":            func(*etcdconn.Settings) {},
		"nothing but an endpoint": func(s *etcdconn.Settings) { *s = etcdconn.Settings{Endpoints: []string{"a:1"}} },
		"several endpoints": func(s *etcdconn.Settings) {
			s.Endpoints = []string{"https://a:1", " https://[::1]:2/ "}
		},
		"TLS by its files alone": func(s *etcdconn.Settings) {
			s.CACert = ca.File()
			s.Cert = cert
			s.Key = key
		},
		"a password from a file":    func(s *etcdconn.Settings) { s.User, s.PasswordFile = "u", write(t, "secret") },
		"a password from elsewhere": func(s *etcdconn.Settings) { s.User, s.Password = "u", "secret" },
	} {
		s := etcdconn.Defaults()
		change(&s)
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMembersReportTheirClock(t *testing.T) {
	plain := start(t)
	mutual := etcdtest.Start(t, etcdtest.ClientCerts())
	cert, key := mutual.CA().Issue(t, "u")
	for name, s := range map[string]etcdconn.Settings{
		"plain": as(plain, "", ""),
		"client certificates": {Endpoints: []string{mutual.Endpoint()}, CACert: mutual.CA().File(), Cert: cert,
			Key: key},
	} {
		offsets := etcdconn.ClockOffsets(limit(t, 10*time.Second), s)
		if len(offsets) != 1 || offsets[0].Abs() > 5*time.Second {
			t.Errorf("%s: the offset of our own clock is %v", name, offsets)
		}
	}
	offsets := etcdconn.ClockOffsets(limit(t, 10*time.Second),
		etcdconn.Settings{Endpoints: []string{"http://" + proctest.FreeAddr(t), plain.Endpoint()}})
	if len(offsets) != 1 {
		t.Errorf("of one dead and one living member: %v", offsets)
	}
}
