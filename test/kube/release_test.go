//go:build kube

package kube

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Releases live on the API server: installed with the chart of the last release, upgraded to this one, rolled back and
// uninstalled. No controller runs, so no pods come of it; the tests ask for them.
func TestTheChart(t *testing.T) {
	c := startCluster(t)
	old := oldChart(t)
	// One after the other: each looks at the whole cluster for what it left.
	t.Run("upgraded with the same files", func(t *testing.T) { life(t, newHelm(t, c, "files"), old, false) })
	t.Run("upgraded with the values it has", func(t *testing.T) { life(t, newHelm(t, c, "values"), old, true) })
	t.Run("with an etcd for a trial", func(t *testing.T) { trial(t, c, old) })
	t.Run("without the kinds of the monitoring", func(t *testing.T) { withoutKinds(t, c) })
	c.addKinds(t)
	t.Run("with the kinds of the monitoring", func(t *testing.T) { withKinds(t, c) })
	t.Run("of every scenario", func(t *testing.T) { everyScenario(t, c) })
	t.Run("gives its accounts no more than they need", func(t *testing.T) { rights(t, c) })
}

// settings are values that an upgrade has to keep.
const settings = `
policy: auto-unlock
etcd: {endpoints: ["https://etcd:2379"], ca: {secret: unlocker-etcd, key: company.pem}}
sweep: {exclude: [db/*], minWarning: 45s, defaultAlertAfter: 2h}
log: {level: debug}
commonLabels: {team: platform}
unlocker:
  etcd: {clientCert: {secret: unlocker-etcd}}
  replicas: 3
  history: {retention: 720h, max: 123}
  metrics: {lockSeries: all}
  podLabels: {kind: daemon}
mutexdash:
  etcd: {user: mutexdash, password: {secret: mutexdash-etcd, key: etcd-password}}
  environment: prod-eu
  identity: {source: header, header: X-Email, groupsHeader: X-Groups, trustedProxies: [10.42.0.0/16]}
  permissions: {everyone: [view], groups: {on-call: [view, unlock]}}
  forceUnlock: true
  ingress: {enabled: true, host: locks.example.org, tlsSecret: locks-example-org}
networkPolicy: {enabled: true}
`

// life installs, upgrades, rolls back and uninstalls a release. Its objects and settings stay. That programs start with
// what pods get is shown by test/deploy.
func life(t *testing.T, h *helm, old string, reuse bool) {
	file, err := h.cluster.File("values.yaml", settings)
	proctest.Must(t, err)
	with := []string{"--values", file}

	h.run(t, append([]string{"install", "locks", old}, with...)...)
	installed := h.release(t)
	h.mayRun(t)
	if reuse {
		with = []string{"--reset-then-reuse-values"}
	}
	h.run(t, append([]string{"upgrade", "locks", chartPath}, with...)...)
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
	h.mayRun(t)
	h.run(t, "rollback", "locks", "1")
	for name, is := range h.release(t) {
		if was := installed[name]; was.uid != is.uid || !reflect.DeepEqual(was.spec, is.spec) {
			t.Errorf("rolled back is %s\n%v\ninstalled was\n%v", name, is.spec, was.spec)
		}
	}
	h.uninstall(t)
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
		for _, o := range h.cluster.items(t, path) {
			meta := o["metadata"].(object)
			r := released{uid: meta["uid"].(string), spec: o["spec"]}
			if data, ok := o["data"]; ok {
				r.spec = data
			}
			if kind == "deployments" {
				pod := o["spec"].(object)["template"].(object)["spec"].(object)
				for _, arg := range pod["containers"].([]any)[0].(object)["args"].([]any) {
					r.args = append(r.args, arg.(string))
				}
			}
			all[kind+" "+meta["name"].(string)] = r
		}
	}
	if len(all) < 4 {
		t.Fatalf("the release has only %v", all)
	}
	return all
}

// mayRun asks for the pods of the release, in its namespace, as a controller would.
func (h *helm) mayRun(t *testing.T) {
	t.Helper()
	for _, name := range []string{"locks-unlocker", "locks-unlocker-mutexdash"} {
		path := "/apis/apps/v1/namespaces/" + h.namespace + "/deployments/" + name
		pod := h.cluster.ask(t, "GET", path, nil)["spec"].(object)["template"].(object)
		h.cluster.ask(t, "POST", "/api/v1/namespaces/"+h.namespace+"/pods?dryRun=All",
			object{"metadata": object{"name": name}, "spec": pod["spec"]})
	}
}

// trial upgrades the etcd of a trial, whose StatefulSet may hardly change, and uninstalls it.
func trial(t *testing.T, c *cluster, old string) {
	h := newHelm(t, c, "trial")
	const set = "--set=policy=auto-unlock,etcd.deploy=true"
	h.run(t, "install", "locks", old, set)
	was := h.release(t)["statefulsets locks-unlocker-etcd"]
	h.run(t, "upgrade", "locks", chartPath, set)
	if is := h.release(t)["statefulsets locks-unlocker-etcd"]; is.uid != was.uid || is.uid == "" {
		t.Errorf("the etcd was %v and is %v", was, is)
	}
	h.uninstall(t)
}
