package pod

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
)

// pod has the fields of a pod that are used. The others, which are most, are skipped while decoding: 10,000 complete
// pods would take hundreds of megabytes.
type pod struct {
	metav1.TypeMeta
	Metadata objectMeta `json:"metadata"`
	Spec     struct {
		RestartPolicy       string          `json:"restartPolicy"`
		RuntimeClassName    *string         `json:"runtimeClassName"`
		Containers          []containerSpec `json:"containers"`
		InitContainers      []containerSpec `json:"initContainers"`
		EphemeralContainers []containerSpec `json:"ephemeralContainers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Reason     string `json:"reason"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"conditions"`
		Containers          []containerStatus `json:"containerStatuses"`
		InitContainers      []containerStatus `json:"initContainerStatuses"`
		EphemeralContainers []containerStatus `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

type objectMeta struct {
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Annotations     struct {
		Mirror           *string `json:"kubernetes.io/config.mirror"` // of a static pod, from a file of its node
		InitialEventsEnd string  `json:"k8s.io/initial-events-end"`   // of a bookmark
	} `json:"annotations"`

	DeletionTimestamp          *metav1.Time `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64       `json:"deletionGracePeriodSeconds"`
}

type containerSpec struct {
	Name          string `json:"name"`
	RestartPolicy string `json:"restartPolicy"`
	// rules for single exit codes
	RestartPolicyRules []struct{} `json:"restartPolicyRules"`
}

type containerStatus struct {
	Name        string         `json:"name"`
	ContainerID string         `json:"containerID"`
	State       containerState `json:"state"`
	LastState   containerState `json:"lastState"`
}

type containerState struct {
	Running *struct {
		StartedAt metav1.Time `json:"startedAt"`
	} `json:"running"`
	Terminated *struct {
		ExitCode    int         `json:"exitCode"`
		Signal      int         `json:"signal"`
		Reason      string      `json:"reason"`
		StartedAt   metav1.Time `json:"startedAt"`
		FinishedAt  metav1.Time `json:"finishedAt"`
		ContainerID string      `json:"containerID"`
	} `json:"terminated"`
}

type podList struct {
	metav1.TypeMeta
	metav1.ListMeta `json:"metadata"`
	Items           []pod `json:"items"`
}

func (p *pod) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: types.UID(p.Metadata.UID),
		ResourceVersion: p.Metadata.ResourceVersion,
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: p.Metadata.Annotations.InitialEventsEnd},
	}
}

// DeepCopyObject implements [runtime.Object]. A shallow copy will do, because a pod is not modified after it was read.
func (p *pod) DeepCopyObject() runtime.Object {
	c := *p
	return &c
}

func (l *podList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

func groupVersion() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }

func codecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(groupVersion().WithKind("Pod"), &pod{})
	scheme.AddKnownTypeWithName(groupVersion().WithKind("PodList"), &podList{})
	metav1.AddToGroupVersion(scheme, groupVersion())
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// summary returns what matters for a proof.
func (p *pod) summary() podproof.Pod {
	s := podproof.Pod{
		Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, UID: p.Metadata.UID,
		Phase: p.Status.Phase, Reason: p.Status.Reason, Static: p.Metadata.Annotations.Mirror != nil,
		OwnClock: p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName != "",
		Deleting: podproof.Never, Gone: podproof.Never,
	}
	if p.Metadata.DeletionTimestamp != nil {
		s.Deleting = 0
		if seconds := p.Metadata.DeletionGracePeriodSeconds; seconds != nil {
			s.Grace = time.Duration(*seconds) * time.Second
		}
	}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == "DisruptionTarget" && c.Status == "True":
			s.Disruption = c.Reason
		case c.Type == "Ready" && c.Status == "False":
			s.KubeletEnded = c.Reason == "PodCompleted" || c.Reason == "PodFailed"
		}
	}
	hasRules := p.hasRestartRules()
	for _, kind := range []struct {
		specs    []containerSpec
		statuses []containerStatus
		isMain   bool // a new sandbox runs init containers again
	}{
		{p.Spec.Containers, p.Status.Containers, true}, {p.Spec.InitContainers, p.Status.InitContainers, false},
		{p.Spec.EphemeralContainers, p.Status.EphemeralContainers, false},
	} {
		for _, spec := range kind.specs {
			c := newContainer(spec.Name, kind.statuses)
			c.MayRestart = !kind.isMain || hasRules || mayRestart(p.Spec.RestartPolicy, spec.RestartPolicy, c.End)
			s.Containers = append(s.Containers, c)
		}
	}
	return s
}

// hasRestartRules reports whether a container has restart rules of its own, which may restart all others, too.
func (p *pod) hasRestartRules() bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers),
		func(c containerSpec) bool { return len(c.RestartPolicyRules) > 0 })
}

// mayRestart reports whether the kubelet may restart a container with this end.
func mayRestart(ofPod, own string, end *podproof.End) bool {
	switch cmp.Or(own, ofPod) {
	case "Never":
		return false
	case "OnFailure":
		return end == nil || end.ID == "" || end.ExitCode != 0
	}
	return true
}

func newContainer(name string, statuses []containerStatus) podproof.Container {
	c := podproof.Container{Name: name, NewSince: podproof.Never, EndedSince: podproof.Never}
	for i := range statuses {
		if s := &statuses[i]; s.Name == name {
			c.Last = s.LastState.end()
			s.setNewest(&c)
		}
	}
	return c
}

// setNewest sets the fields about the newest incarnation.
func (s *containerStatus) setNewest(c *podproof.Container) {
	end := s.State.end()
	switch {
	case s.State.Running != nil:
		c.ID = s.ContainerID
		c.StartedAt = s.State.Running.StartedAt.Time
		return
	case end == nil && c.Last == nil:
		c.ID = s.ContainerID // created, but not started; or its runtime does not answer
		return
	case end == nil, end.ID == "" && c.Last != nil && c.Last.ID == s.ContainerID:
		end = c.Last // it waits to be restarted, or was given up while waiting
		c.Last = nil
	}
	c.ID = cmp.Or(end.ID, s.ContainerID)
	c.StartedAt = end.StartedAt
	c.End = end
}

// end returns the end in a state; nil if the container has not ended.
func (s *containerState) end() *podproof.End {
	t := s.Terminated
	if t == nil {
		return nil
	}
	return &podproof.End{
		ID: t.ContainerID, StartedAt: t.StartedAt.Time, FinishedAt: t.FinishedAt.Time,
		ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason,
	}
}
