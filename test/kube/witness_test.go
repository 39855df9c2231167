//go:build kube

package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ago is when locks were taken.
const ago = 5 * time.Minute

func TestTheWitness(t *testing.T) {
	c := startCluster(t)
	c.namespace(t, "shop")
	t.Run("believes kubelets", func(t *testing.T) { t.Parallel(); believes(t, c) })
	t.Run("is blind for a while", func(t *testing.T) { t.Parallel(); blind(t, c) })
	t.Run("has no rights", func(t *testing.T) { t.Parallel(); withoutRights(t, c) })
	t.Run("has no valid token", func(t *testing.T) { t.Parallel(); withoutToken(t, c) })
}

// end is one way in which a holder ends, or seems to.
type end struct {
	about      string
	policy     string // of restarts; Always if empty
	containers []string
	edit       func(*metadata.Process)
	after      func(t *testing.T, p *pod)
	proof      string // cause, or
	suspicion  string // cause
}

func ends() []end {
	ended := func(t *testing.T, p *pod) { p.containers(t, p.Ended("worker", "1")) }
	failed := func(t *testing.T, p *pod) { p.over(t, "Failed", "PodFailed", p.Ended("worker", "1")) }
	removed := func(t *testing.T, p *pod) { p.remove(t) }
	nothing := func(*testing.T, *pod) {}
	return []end{
		{about: "container ended", proof: metadata.CauseContainerEnded, after: ended},
		{about: "container restarted", proof: metadata.CauseContainerRestarted,
			after: func(t *testing.T, p *pod) { p.containers(t, p.Restarted("worker")) }},
		{about: "container waits for its restart", proof: metadata.CauseContainerEnded,
			after: func(t *testing.T, p *pod) {
				p.containers(t, kubetest.Status("worker", "1", object{"waiting": object{"reason": "CrashLoopBackOff"}},
					p.End("worker", "1")))
			}},
		{about: "sidecar ended", containers: []string{"worker", "proxy"},
			after: func(t *testing.T, p *pod) { p.containers(t, p.Ended("proxy", "1")) }},
		{about: "job succeeded", policy: "Never", proof: metadata.CausePodEnded, after: func(t *testing.T, p *pod) {
			p.over(t, "Succeeded", "PodCompleted", p.Ended("worker", "1"))
		}},
		{about: "pod failed", proof: metadata.CausePodEnded, after: failed},
		{about: "pod ended and is gone", proof: metadata.CausePodEnded, after: func(t *testing.T, p *pod) {
			failed(t, p)
			p.remove(t)
		}},
		{about: "deleted by force", suspicion: metadata.CausePodDeleted, after: removed},
		{about: "collected from a lost node", suspicion: metadata.CausePodDeleted, after: func(t *testing.T, p *pod) {
			p.status(t, object{"phase": "Failed", "conditions": []object{{"type": "DisruptionTarget", "status": "True",
				"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}}})
			p.remove(t)
		}},
		{about: "marked as failed", after: func(t *testing.T, p *pod) { p.status(t, object{"phase": "Failed"}) }},
		{about: "node lost", suspicion: metadata.CauseNodeNotReady,
			after: func(t *testing.T, p *pod) { p.status(t, object{"reason": "NodeLost"}) }},
		{about: "out of sight", suspicion: metadata.CauseContainerEnded, after: func(t *testing.T, p *pod) {
			p.containers(t, kubetest.Status("worker", "1", object{"terminated": object{"exitCode": 137,
				"reason": "ContainerStatusUnknown"}}, nil))
		}},
		{about: "no uid", suspicion: metadata.CauseContainerEnded, after: ended,
			edit: func(process *metadata.Process) { process.PodUID = "" }},
		{about: "never there", suspicion: metadata.CausePodNeverSeen, after: nothing,
			edit: func(process *metadata.Process) {
				process.PodName = "other"
				process.PodUID = uuid.NewString()
			}},
		{about: "replaced", suspicion: metadata.CausePodDeleted, after: nothing,
			edit: func(process *metadata.Process) { process.PodUID = uuid.NewString() }},
	}
}

// Every end that a kubelet reports is proof; what others say about a pod is not.
func believes(t *testing.T, c *cluster) {
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.AdminToken))
	w.shows(t, "unlocker_kubernetes_synced 1")
	var living []*hold
	t.Run("ends", func(t *testing.T) {
		for _, e := range ends() {
			name := strings.ReplaceAll(e.about, " ", "-")
			if e.containers == nil {
				e.containers = []string{"worker"}
			}
			if e.policy == "" {
				e.policy = "Always"
			}
			p := podOf(t, c, "shop", name, e.policy, e.containers...)
			process := p.by("worker")
			if e.edit != nil {
				e.edit(&process)
			}
			h := w.lockedBy(t, name, process)
			if e.proof == "" && e.suspicion == "" {
				living = append(living, h)
			}
			t.Run(e.about, func(t *testing.T) {
				t.Parallel()
				e.after(t, p)
				switch {
				case e.proof != "":
					if s := h.proven(t, e.proof); s.ExitCode == nil || *s.ExitCode != 137 || s.Detail != "OOMKilled" ||
						time.Since(s.EndedAt.Time) > time.Minute {
						t.Errorf("%+v", s)
					}
				case e.suspicion != "":
					h.suspected(t, e.suspicion)
				}
			})
		}
	})
	// a minute later, and after the end of another
	last := podOf(t, c, "shop", "the-last-one", "Never", "worker")
	h := w.lockedBy(t, last.Name, last.by("worker"))
	last.over(t, "Failed", "PodFailed", last.Ended("worker", "1"))
	h.proven(t, metadata.CausePodEnded)
	for _, h := range living {
		h.unsuspected(t)
	}
	w.shows(t, `unlocker_kubernetes_statements_total{cause="container_restarted",certainty="proof"} 1`)
}

// What happened while the API server was out of reach is proof only of holds that were seen before.
func blind(t *testing.T, c *cluster) {
	c.namespace(t, "dark")
	network := etcdtest.NewProxy(t, "https://"+c.Address)
	w := startUnlocker(t, c, c.kubeconfig(t, strings.TrimPrefix(network.Endpoint(), "https://"), kubetest.AdminToken),
		"--kubernetes.namespaces=dark")
	w.shows(t, "unlocker_kubernetes_synced 1")
	dead := podOf(t, c, "dark", "dead", "Always", "worker")
	alive := podOf(t, c, "dark", "alive", "Always", "worker")
	removed := podOf(t, c, "dark", "removed", "Always", "worker")
	late := podOf(t, c, "dark", "late", "Always", "worker")
	elsewhere := podOf(t, c, "shop", "elsewhere", "Never", "worker")
	w.shows(t, "unlocker_kubernetes_pods 4")
	ofTheDead := w.lockedBy(t, "dead", dead.by("worker"))
	ofTheLiving := w.lockedBy(t, "alive", alive.by("worker"))
	ofTheRemoved := w.lockedBy(t, "removed", removed.by("worker"))
	ofOthers := w.lockedBy(t, "elsewhere", elsewhere.by("worker"))
	podOf(t, c, "dark", "another", "Always", "worker") // until then, nothing had happened
	w.shows(t, "unlocker_kubernetes_pods 5")

	network.Cut()
	w.shows(t, "unlocker_kubernetes_synced 0")
	w.unlocker.Prints(t, "cannot watch pods")
	ofTheLate := w.lockedBy(t, "late", late.by("worker"))
	dead.containers(t, dead.Restarted("worker"))
	late.containers(t, late.Restarted("worker"))
	removed.remove(t)
	elsewhere.over(t, "Failed", "PodFailed", elsewhere.Ended("worker", "1"))
	for _, h := range []*hold{ofTheDead, ofTheRemoved, ofTheLate} {
		h.unsuspected(t)
	}
	proctest.Answers(t, w.url+"/readyz", http.StatusOK)

	network.Heal()
	ofTheDead.proven(t, metadata.CauseContainerRestarted)
	ofTheRemoved.suspected(t, metadata.CausePodDeleted)
	ofTheLate.suspected(t, metadata.CauseContainerRestarted)
	ofTheLiving.unsuspected(t)
	ofOthers.unsuspected(t)
	w.shows(t, "unlocker_kubernetes_synced 1")
	w.unlocker.Prints(t, "watching pods again")
	if said := strings.Count(w.unlocker.Output(), "is blind"); said > 2 {
		t.Errorf("it is logged %d times", said)
	}
}

// An unlocker without rights says which, does everything else, and sees as soon as it may.
func withoutRights(t *testing.T, c *cluster) {
	c.namespace(t, "bank")
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, kubetest.PlainToken), "--kubernetes.namespaces=bank")
	w.unlocker.Prints(t,
		"the API server does not let us watch the pods of namespace bank: the role needs get, list and "+
			"watch for pods")
	w.shows(t, "unlocker_kubernetes_synced 0")
	w.shows(t, `unlocker_kubernetes_errors_total{error="forbidden"}`)
	p := podOf(t, c, "bank", "worker", "Never", "worker")
	h := w.lockedBy(t, "worker", p.by("worker"))
	p.over(t, "Failed", "PodFailed", p.Ended("worker", "1"))
	h.unsuspected(t)
	roles := "/apis/rbac.authorization.k8s.io/v1/namespaces/bank/"
	c.ask(t, "POST", roles+"roles", object{"metadata": object{"name": "pods"}, "rules": []object{
		{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": []string{"get", "list", "watch"}}}})
	c.ask(t, "POST", roles+"rolebindings", object{"metadata": object{"name": "pods"},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"},
		"subjects": []object{{"kind": "User", "name": "plain", "apiGroup": "rbac.authorization.k8s.io"}}})
	h.proven(t, metadata.CausePodEnded)
}

func withoutToken(t *testing.T, c *cluster) {
	w := startUnlocker(t, c, c.kubeconfig(t, c.Address, "expired"))
	w.unlocker.Prints(t, "the API server does not accept our token or certificate: it answers 401 Unauthorized")
	w.shows(t, `unlocker_kubernetes_errors_total{error="unauthorized"}`)
	w.lockedBy(t, "seen all the same", metadata.Process{PodUID: fmt.Sprint(1)})
}
