//go:build chart

package deploy

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// prepareEtcd runs the etcd that the flags expect, with one role for the unlocker and a smaller one for the dashboard,
// and makes the secrets that the scenarios name.
func (r *release) prepareEtcd(t *testing.T, args []string) {
	t.Helper()
	given := func(flag string) bool {
		return slices.ContainsFunc(args,
			func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
	}
	var options []etcdtest.Option
	switch {
	case given("--etcd.cert"):
		options = []etcdtest.Option{etcdtest.ClientCerts(), etcdtest.Auth()}
	case given("--etcd.user"):
		options = []etcdtest.Option{etcdtest.TLS(), etcdtest.Auth()}
	case given("--etcd.insecure-skip-tls-verify"):
		options = []etcdtest.Option{etcdtest.TLS()}
	}
	etcd := etcdtest.Start(t, options...)
	r.endpoint = etcd.Endpoint()
	ca := etcd.CA()
	if ca == nil {
		return
	}
	authority := read(t, ca.File())
	r.objects["company-ca"] = map[string]string{"company.pem": authority}
	if len(options) < 2 {
		return
	}
	for _, who := range []struct {
		name    string
		secrets []string
		right   etcdtest.Right
	}{
		{"unlocker", []string{"unlocker-etcd", "etcd-client"}, etcdtest.ReadWrite},
		{"mutexdash", []string{"mutexdash-etcd", "etcd-client-readonly"}, etcdtest.Read},
		{"mutexdash-write", []string{"mutexdash-etcd-write"}, etcdtest.ReadWrite},
		{"unlocker-witness", []string{"witness-etcd"}, etcdtest.Read},
		{"mutexdash-login", []string{"mutexdash-login"}, etcdtest.Read},
	} {
		password := ""
		if given("--etcd.user") || who.name == "mutexdash-login" {
			password = "password of " + who.name
		}
		etcd.AddUser(t, who.name, password, prefix(args), who.right)
		cert, key := ca.Issue(t, who.name)
		for _, secret := range who.secrets {
			r.objects[secret] = map[string]string{
				"ca.crt": authority, "tls.crt": read(t, cert), "tls.key": read(t, key), "cert.pem": read(t, cert),
				"key.pem":  read(t, key),
				"password": password, "etcd-password": password + "\n",
			}
		}
	}
	mayState(t, etcd, "unlocker-witness", prefix(args))
}

// prefix is that of the locks.
func prefix(args []string) string {
	for _, arg := range args {
		if p, ok := strings.CutPrefix(arg, "--locks.prefix="); ok {
			return strings.TrimSuffix(p, "/") + "/"
		}
	}
	return protocol.DefaultPrefix
}

// webSecrets are those of servers with authentication. The password of ann is "test".
func (r *release) webSecrets(t *testing.T) {
	t.Helper()
	cert, key := r.web.Issue(t, "server")
	server := map[string]string{"tls.crt": read(t, cert), "tls.key": read(t, key), "ca.crt": read(t, r.web.File())}
	r.objects["unlocker-server"], r.objects["mutexdash-server"] = server, server
	const users = "basic_auth_users:\n  ann: $2a$04$LYB8BWBw84czLD2u3iqe0urGcCv4NUdah.KQ/N90/CvJnJCOMZwOu\n"
	const secure = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
	r.objects["mutexdash-users"] = map[string]string{"users.yml": users}
	r.objects["unlocker-web"] = map[string]string{"web.yml": secure + users}
	r.objects["mutexdash-web"] = map[string]string{"web.yml": secure +
		"  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"}
	r.objects["zone"] = map[string]string{"zone": "eu"}
}

// visited is a port of a running program.
type visited struct {
	args          []string
	port, address string
}

func (v visited) has(flag string) bool { return slices.Contains(v.args, flag) }

// visit comes to a port as its visitors do: Prometheus, a browser.
func (r *release) visit(t *testing.T, v visited) {
	t.Helper()
	secret := slices.ContainsFunc(v.args, func(arg string) bool { return strings.HasPrefix(arg, "--web.config.file=") })
	switch {
	case v.port == "probes":
		proctest.Answers(t, "http://"+v.address+"/metrics", http.StatusNotFound)
	case v.port == "ops", v.port == "metrics" && !secret:
		proctest.Answers(t, "http://"+v.address+"/metrics", http.StatusOK)
	case v.port == "metrics":
		proctest.AnswersTo(t, r.browser(t, false), "https://"+v.address+"/metrics", http.StatusUnauthorized)
		proctest.AnswersTo(t, r.browser(t, false), "https://ann:test@"+v.address+"/metrics", http.StatusOK)
	case v.has("--web.identity=basic"):
		proctest.Answers(t, "http://"+v.address+"/", http.StatusUnauthorized)
		proctest.Answers(t, "http://ann:test@"+v.address+"/audit", http.StatusOK)
	case v.has("--web.identity=mtls"):
		if status, _, _ := proctest.Get(r.browser(t, false), "https://"+v.address+"/"); status == http.StatusOK {
			t.Error("the pages are shown without a certificate")
		}
		proctest.AnswersTo(t, r.browser(t, true), "https://"+v.address+"/", http.StatusForbidden) // it is not ann
	case v.has("--web.identity=header"):
		proctest.Answers(t, "http://"+v.address+"/", http.StatusUnauthorized) // we are not the proxy
	default:
		proctest.Answers(t, "http://"+v.address+v.base()+"/", http.StatusOK)
	}
}

// base is the path that the pages begin with.
func (v visited) base() (path string) {
	for _, arg := range v.args {
		if external, ok := strings.CutPrefix(arg, "--web.external-url="); ok {
			u, _ := url.Parse(external)
			path = strings.TrimSuffix(u.Path, "/")
		}
	}
	if v.has("--web.route-prefix=/") {
		return ""
	}
	return path
}

// browser trusts our servers, and has a certificate or has none.
func (r *release) browser(t *testing.T, certificate bool) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: r.web.Pool(), MinVersion: tls.VersionTLS12}
	if certificate {
		pair, err := tls.LoadX509KeyPair(r.web.Issue(t, "browser"))
		proctest.Must(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}
