//go:build kube

package kube

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
)

// pod is a pod in the API server, whose kubelet the test plays.
type pod struct{ *kubetest.Pod }

// podOf makes a pod whose containers have run for ten minutes.
func podOf(t *testing.T, c *cluster, namespace, name, restartPolicy string, containers ...string) *pod {
	t.Helper()
	p, err := c.MakePod(namespace, name, restartPolicy, 10*time.Minute, containers...)
	if err != nil {
		t.Fatal(err)
	}
	return &pod{p}
}

// status patches the pod's status, as its kubelet does, or a controller.
func (p *pod) status(t *testing.T, status object) {
	t.Helper()
	if err := p.Report(status); err != nil {
		t.Fatal(err)
	}
}

// containers reports new states of containers.
func (p *pod) containers(t *testing.T, statuses ...object) {
	t.Helper()
	p.status(t, object{"containerStatuses": statuses})
}

// over reports the end of the pod, as a kubelet does.
func (p *pod) over(t *testing.T, phase, reason string, statuses ...object) {
	t.Helper()
	p.status(t, object{"phase": phase, "containerStatuses": statuses,
		"conditions": []object{{"type": "Ready", "status": "False", "reason": reason}}})
}

// remove deletes the pod at once: after the end of its containers as its kubelet does, or by force.
func (p *pod) remove(t *testing.T) {
	t.Helper()
	if _, err := p.Server.Ask("DELETE", p.Path(), "application/json", object{"gracePeriodSeconds": 0}); err != nil {
		t.Fatal(err)
	}
}
