package kubetest

import "time"

// Pod is a pod in the API server, whose kubelet the caller plays.
type Pod struct {
	Server               *Server
	Namespace, Name, UID string
	Began                time.Time // when its containers did
}

// MakePod makes a pod whose containers have run for a while.
func (s *Server) MakePod(namespace, name, restartPolicy string, age time.Duration, containers ...string) (*Pod, error) {
	p := &Pod{Server: s, Namespace: namespace, Name: name, Began: time.Now().Add(-age)}
	var specs, statuses []Object
	for _, container := range containers {
		specs = append(specs, Object{"name": container, "image": "example.org/" + container})
		statuses = append(statuses, p.Running(container, "1", p.Began))
	}
	made, err := s.Ask("POST", "/api/v1/namespaces/"+namespace+"/pods", "application/json", Object{
		"metadata": Object{"name": name},
		"spec": Object{"nodeName": "node-1", "restartPolicy": restartPolicy, "automountServiceAccountToken": false,
			"containers": specs},
	})
	if err != nil {
		return nil, err
	}
	p.UID = made["metadata"].(Object)["uid"].(string)
	return p, p.Report(Object{"phase": "Running", "containerStatuses": statuses,
		"conditions": []Object{{"type": "Ready", "status": "True"}}})
}

// Path is where the API server has the pod.
func (p *Pod) Path() string { return "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name }

// Report patches the pod's status, as its kubelet does, or a controller.
func (p *Pod) Report(status Object) error {
	const patch = "application/strategic-merge-patch+json"
	_, err := p.Server.Ask("PATCH", p.Path()+"/status", patch, Object{"status": status})
	return err
}

// Running is the status of a container that runs: the start is a number of the caller's.
func (p *Pod) Running(container, start string, since time.Time) Object {
	return Status(container, start, Object{"running": Object{"startedAt": rfc3339(since)}}, nil)
}

// Ended is the status of a container that was killed just now, after it had begun with the pod.
func (p *Pod) Ended(container, start string) Object {
	return Status(container, start, p.End(container, start), nil)
}

// Restarted is the status of a container that runs in its second start.
func (p *Pod) Restarted(container string) Object {
	return Status(container, "2", Object{"running": Object{"startedAt": rfc3339(time.Now())}}, p.End(container, "1"))
}

// End is the state of a container that was killed just now.
func (p *Pod) End(container, start string) Object {
	return Object{"terminated": Object{"exitCode": 137, "reason": "OOMKilled", "startedAt": rfc3339(p.Began),
		"finishedAt": rfc3339(time.Now()), "containerID": id(container, start)}}
}

// Status is that of a container with its state, and with the state before its last restart, if there was one.
func Status(container, start string, state, last Object) Object {
	// null deletes what a patch would keep
	whole := Object{"running": nil, "terminated": nil, "waiting": nil}
	for member, value := range state {
		whole[member] = value
	}
	s := Object{"name": container, "image": "example.org/" + container, "imageID": "", "ready": false,
		"restartCount": 0, "containerID": id(container, start), "state": whole}
	if last != nil {
		s["lastState"] = last
	}
	return s
}

func id(container, start string) string { return "containerd://" + container + "-" + start }

func rfc3339(at time.Time) string { return at.UTC().Format(time.RFC3339) }
