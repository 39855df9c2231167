//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Releases live on the API server: installed with the chart of the last release, upgraded to this one, rolled back and
// uninstalled. No controller and no kubelet runs, so no pods come of it; the tests do their part.
func TestTheChart(t *testing.T) {
	c := startCluster(t)
	old := oldChart(t)
	// One after the other: each looks at the whole cluster for what it left.
	t.Run("with client certificates", func(t *testing.T) { life(t, c, old, certificates(t)) })
	t.Run("with passwords", func(t *testing.T) { life(t, c, old, passwords(t)) })
	t.Run("with an etcd for a trial", func(t *testing.T) { trial(t, c, old) })
	t.Run("without the kinds of the monitoring", func(t *testing.T) { withoutKinds(t, c) })
	c.addKinds(t)
	t.Run("with the kinds of the monitoring", func(t *testing.T) { withKinds(t, c) })
	t.Run("of every scenario", func(t *testing.T) { everyScenario(t, c) })
	t.Run("gives its accounts no more than they need", func(t *testing.T) { rights(t, c) })
}

// installation is an etcd of somebody, the secrets for it, and the values that lead there.
type installation struct {
	name    string
	etcd    *etcdtest.Server
	secrets map[string]map[string]string
	login   string // YAML
	reuse   bool   // upgrade with the values of the release, not with the file
}

// certificates is an etcd that knows its clients by their certificates.
func certificates(t *testing.T) installation {
	t.Helper()
	i := installation{name: "certificates", etcd: etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())}
	i.secrets = map[string]map[string]string{}
	for user, right := range users() {
		i.etcd.AddUser(t, user, "", "/mutexes/", right)
		cert, key := i.etcd.CA().Issue(t, user)
		i.secrets[user+"-etcd"] = map[string]string{"ca.crt": text(t, i.etcd.CA().File()), "tls.crt": text(t, cert),
			"tls.key": text(t, key)}
	}
	i.login = `
etcd: {ca: {secret: unlocker-etcd}}
unlocker: {etcd: {clientCert: {secret: unlocker-etcd}}}
mutexdash: {etcd: {clientCert: {secret: mutexdash-etcd}}}
`
	return i
}

// passwords is an etcd that knows its clients by their passwords.
func passwords(t *testing.T) installation {
	t.Helper()
	i := installation{name: "passwords", etcd: etcdtest.Start(t, etcdtest.TLS(), etcdtest.Auth()), reuse: true}
	i.secrets = map[string]map[string]string{}
	for user, right := range users() {
		i.etcd.AddUser(t, user, "secret of "+user, "/mutexes/", right)
		i.secrets[user+"-etcd"] = map[string]string{"company.pem": text(t, i.etcd.CA().File()),
			"etcd-password": "secret of " + user}
	}
	i.login = `
etcd: {ca: {secret: unlocker-etcd, key: company.pem}}
unlocker: {etcd: {user: unlocker, password: {secret: unlocker-etcd, key: etcd-password}}}
mutexdash: {etcd: {user: mutexdash, password: {secret: mutexdash-etcd, key: etcd-password}}}
`
	return i
}

func users() map[string]etcdtest.Right {
	return map[string]etcdtest.Right{"unlocker": etcdtest.ReadWrite, "mutexdash": etcdtest.Read}
}

// settings are values that an upgrade has to keep.
const settings = `
policy: auto-unlock
sweep: {exclude: [db/*], minWarning: 45s, defaultAlertAfter: 2h}
log: {level: debug}
commonLabels: {team: platform}
unlocker: {replicas: 3, history: {retention: 720h, max: 123}, metrics: {lockSeries: all}, podLabels: {kind: daemon}}
mutexdash:
  environment: prod-eu
  identity: {source: header, header: X-Email, groupsHeader: X-Groups, trustedProxies: [10.42.0.0/16]}
  permissions: {everyone: [view], groups: {on-call: [view, unlock]}}
  forceUnlock: true
  ingress: {enabled: true, host: locks.example.org, tlsSecret: locks-example-org}
networkPolicy: {enabled: true}
`

// life installs, upgrades, rolls back and uninstalls a release. Its unlocker runs in between, as its pods would. Locks,
// history and settings stay.
func life(t *testing.T, c *cluster, old string, i installation) {
	h := newHelm(t, c, i.name)
	for name, data := range i.secrets {
		c.create(t, "/api/v1/namespaces/"+i.name+"/secrets",
			object{"metadata": object{"name": name}, "stringData": data})
	}
	before := c.inventory(t)
	directory := t.TempDir()
	files := []string{}
	where := "etcd: {endpoints: [\"" + i.etcd.Endpoint() + "\"]}\n"
	for n, values := range []string{settings, i.login, where} {
		file := filepath.Join(directory, fmt.Sprint(n, ".yaml"))
		write(t, file, []byte(values))
		files = append(files, "--values", file)
	}
	kept := keepLocks(t, i)

	h.run(t, append([]string{"install", "locks", old}, files...)...)
	installed := h.release(t)
	h.works(t)
	if i.reuse {
		files = []string{"--reuse-values"}
	}
	h.run(t, append([]string{"upgrade", "locks", chartPath}, files...)...)
	upgraded := h.release(t)
	for name, was := range installed {
		is, there := upgraded[name]
		switch {
		case !there:
			t.Errorf("the upgrade removes %s", name)
		case was.uid != is.uid:
			t.Errorf("the upgrade makes %s anew", name)
		}
		for _, arg := range was.args {
			if strings.HasSuffix(name, "-mutexdash") && strings.HasPrefix(arg, "--sweep.") {
				continue // a dashboard reads from the unlockers what they do: ADR 0026
			}
			if !slices.Contains(is.args, arg) {
				t.Errorf("the upgrade drops %s of %s, which has %q", arg, name, is.args)
			}
		}
	}
	h.works(t)
	h.run(t, "rollback", "locks", "1")
	for name, is := range h.release(t) {
		if was := installed[name]; was.uid != is.uid || !reflect.DeepEqual(was.spec, is.spec) {
			t.Errorf("rolled back is %s\n%v\ninstalled was\n%v", name, is.spec, was.spec)
		}
	}
	h.run(t, "uninstall", "locks")
	nothingMore(t, c, before)
	if now := lockKeys(t, i); !reflect.DeepEqual(now, kept) {
		t.Errorf("of the locks and their history remains\n%v\nof\n%v", now, kept)
	}
}

// keepLocks takes one lock, has the hold of another one ended, and returns the keys of both.
func keepLocks(t *testing.T, i installation) map[string]int64 {
	t.Helper()
	directory := t.TempDir()
	args := []string{"--etcd.endpoints=" + i.etcd.Endpoint()}
	for file, text := range i.secrets["unlocker-etcd"] {
		path := filepath.Join(directory, file)
		write(t, path, []byte(text))
		args = append(args, map[string]string{"ca.crt": "--etcd.cacert=", "company.pem": "--etcd.cacert=",
			"tls.crt": "--etcd.cert=", "tls.key": "--etcd.key=", "etcd-password": "--etcd.password-file="}[file]+path)
		if file == "etcd-password" {
			args = append(args, "--etcd.user=unlocker")
		}
	}
	mutexctl := func(command ...string) string {
		got := proctest.Run(t, programs.Command(t, "mutexctl", append(command, args...)...))
		if got.Code != 0 {
			t.Fatalf("mutexctl %q: %s%s", command, got.Stdout, got.Stderr)
		}
		return got.Stdout
	}
	mutexctl("reserve", "kept", "--for", "1h", "--purpose", "to outlive a release")
	mutexctl("reserve", "ended", "--for", "1h", "--purpose", "to be remembered")
	var record struct{ UUID string }
	if err := json.Unmarshal([]byte(mutexctl("show", "ended", "-o", "json")), &record); err != nil {
		t.Fatal(err)
	}
	mutexctl("force-unlock", "ended", "--uuid", record.UUID, "--yes", "--reason", "for the history")
	kept := lockKeys(t, i)
	if len(kept) < 6 { // a record, an ending, an action
		t.Fatalf("only %v", kept)
	}
	return kept
}

// lockKeys are the keys of locks, history and audit with the revisions of their last changes. Unlockers come and go.
func lockKeys(t *testing.T, i installation) map[string]int64 {
	t.Helper()
	keys := map[string]int64{}
	got, err := i.etcd.Client(t).Get(t.Context(), "/mutexes/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		if key := string(kv.Key); !strings.HasPrefix(key, "/mutexes/.unlockers/") {
			keys[key] = kv.ModRevision
		}
	}
	return keys
}

// released is an object of a release.
type released struct {
	uid  string
	spec any
	args []string // of the first container, if it makes pods
}

// release reads the objects of the release from the API server.
func (h *helm) release(t *testing.T) map[string]released {
	t.Helper()
	all := map[string]released{}
	for kind, version := range map[string]string{"deployments": "/apis/apps/v1", "statefulsets": "/apis/apps/v1",
		"services": "/api/v1", "serviceaccounts": "/api/v1", "configmaps": "/api/v1",
		"poddisruptionbudgets": "/apis/policy/v1", "ingresses": "/apis/networking.k8s.io/v1",
		"networkpolicies": "/apis/networking.k8s.io/v1"} {
		path := version + "/namespaces/" + h.namespace + "/" + kind +
			"?labelSelector=app.kubernetes.io/instance%3Dlocks"
		items, _ := h.cluster.ask(t, "GET", path, "", nil)["items"].([]any)
		for _, item := range items {
			o := item.(object)
			meta := o["metadata"].(object)
			r := released{uid: meta["uid"].(string), spec: o["spec"]}
			if data, ok := o["data"]; ok {
				r.spec = data
			}
			name := meta["name"].(string)
			if kind == "deployments" {
				r.args = h.cluster.deployment(t, h.namespace, name).args()
			}
			all[kind+" "+name] = r
		}
	}
	if len(all) < 4 {
		t.Fatalf("the release has only %v", all)
	}
	return all
}

// works runs the unlocker of the release: it sees the lock, and is restricted enough for the namespace.
func (h *helm) works(t *testing.T) {
	t.Helper()
	p, url := h.cluster.starts(t, h.namespace, "locks-unlocker")
	proctest.Eventually(t, "the lock in the metrics", func() error {
		_, body, err := proctest.Get(http.DefaultClient, url+"/metrics")
		if err == nil && !strings.Contains(body, `unlocker_locks{state="held"} 1`) {
			err = fmt.Errorf("no lock is held in\n%s", body)
		}
		return err
	})
	if code := p.Terminate(t); code != 0 {
		t.Errorf("the unlocker ends with %d", code)
	}
	for _, name := range []string{"locks-unlocker", "locks-unlocker-mutexdash"} {
		path := "/apis/apps/v1/namespaces/" + h.namespace + "/deployments/" + name
		pod := h.cluster.ask(t, "GET", path, "", nil)["spec"].(object)["template"].(object)
		h.cluster.ask(t, "POST", "/api/v1/namespaces/"+h.namespace+"/pods?dryRun=All", "application/json",
			object{"metadata": object{"name": name}, "spec": pod["spec"]})
	}
}

// trial upgrades the etcd of a trial, whose StatefulSet may hardly change, and uninstalls it.
func trial(t *testing.T, c *cluster, old string) {
	h := newHelm(t, c, "trial")
	before := c.inventory(t)
	h.run(t, "install", "locks", old, "--set", "policy=auto-unlock,etcd.deploy=true")
	was := h.release(t)["statefulsets locks-unlocker-etcd"]
	h.run(t, "upgrade", "locks", chartPath, "--set", "policy=auto-unlock,etcd.deploy=true")
	if is := h.release(t)["statefulsets locks-unlocker-etcd"]; is.uid != was.uid || is.uid == "" {
		t.Errorf("the etcd was %v and is %v", was, is)
	}
	h.run(t, "uninstall", "locks")
	nothingMore(t, c, before)
}

func text(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
