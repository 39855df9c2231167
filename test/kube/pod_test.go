//go:build kube

package kube

import (
	"testing"
	"time"
)

// pod is a pod in the API server, whose kubelet the test plays.
type pod struct {
	cluster         *cluster
	namespace, name string
	uid             string
	began           time.Time // when its containers did
}

// podOf makes a pod whose containers have run for ten minutes.
func podOf(t *testing.T, c *cluster, namespace, name, restartPolicy string, containers ...string) *pod {
	t.Helper()
	p := &pod{cluster: c, namespace: namespace, name: name, began: time.Now().Add(-10 * time.Minute)}
	specs := []object{}
	statuses := []object{}
	for _, container := range containers {
		specs = append(specs, object{"name": container, "image": "example.org/" + container})
		statuses = append(statuses, p.running(container, "1", p.began))
	}
	made := c.create(t, "/api/v1/namespaces/"+namespace+"/pods", object{
		"metadata": object{"name": name},
		"spec": object{"nodeName": "node-1", "restartPolicy": restartPolicy, "automountServiceAccountToken": false,
			"containers": specs},
	})
	p.uid = made["metadata"].(object)["uid"].(string)
	p.status(t, object{"phase": "Running", "containerStatuses": statuses,
		"conditions": []object{{"type": "Ready", "status": "True"}}})
	return p
}

func (p *pod) path() string { return "/api/v1/namespaces/" + p.namespace + "/pods/" + p.name }

// status patches the pod's status, as its kubelet does, or a controller.
func (p *pod) status(t *testing.T, status object) {
	t.Helper()
	p.cluster.ask(t, "PATCH", p.path()+"/status", "application/strategic-merge-patch+json", object{"status": status})
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
	p.cluster.ask(t, "DELETE", p.path(), "application/json", object{"gracePeriodSeconds": 0})
}

// running is the status of a container that runs: the start is a number of our own.
func (p *pod) running(container, start string, since time.Time) object {
	return status(container, start, object{"running": object{"startedAt": rfc3339(since)}}, nil)
}

// ended is the status of a container that was killed just now, after it had begun with the pod.
func (p *pod) ended(container, start string) object {
	return status(container, start, p.end(container, start), nil)
}

// again is the status of a container that runs in its second start.
func (p *pod) again(container string) object {
	return status(container, "2", object{"running": object{"startedAt": rfc3339(time.Now())}}, p.end(container, "1"))
}

func (p *pod) end(container, start string) object {
	return object{"terminated": object{"exitCode": 137, "reason": "OOMKilled", "startedAt": rfc3339(p.began),
		"finishedAt": rfc3339(time.Now()), "containerID": id(container, start)}}
}

func status(container, start string, state, last object) object {
	// null deletes what a patch would keep
	whole := object{"running": nil, "terminated": nil, "waiting": nil}
	for member, value := range state {
		whole[member] = value
	}
	s := object{"name": container, "image": "example.org/" + container, "imageID": "", "ready": false,
		"restartCount": 0, "containerID": id(container, start), "state": whole}
	if last != nil {
		s["lastState"] = last
	}
	return s
}

func id(container, start string) string { return "containerd://" + container + "-" + start }

func rfc3339(at time.Time) string { return at.UTC().Format(time.RFC3339) }
