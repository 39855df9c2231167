// Package podproof judges, from what the API server of Kubernetes says of a pod, whether the holder of a lock in it has
// ended: proof, a suspicion, or nothing. Proof is what a kubelet saw. Nothing else is, because a kubelet that is cut
// off keeps its containers running: docs/adr/0014-what-a-witness-of-kubernetes-believes.md.
//
// The package is pure: no clock, no I/O, no Kubernetes.
package podproof

import "time"

// Never is the moment of what has not been observed.
const Never = time.Duration(-1)

// Pod is a pod as it was last seen. Times of day are those of its node, truncated to seconds; durations are
// moments on the observer's clock, [Never] if not observed.
type Pod struct {
	Namespace string
	Name      string
	UID       string

	Phase      string // Pending, Running, Succeeded, Failed or Unknown
	Reason     string // of the phase, such as Evicted or NodeLost
	Disruption string // why somebody ends the pod: the reason of its condition DisruptionTarget
	// KubeletEnded reports whether the phase is the kubelet's own word: with it comes the condition Ready, with the
	// reason PodCompleted or PodFailed, which no controller writes.
	KubeletEnded bool
	// Static pods have an identity that is not unique in time.
	Static bool
	// OwnClock reports whether the containers may have another clock than the node: those in a virtual machine do.
	OwnClock bool

	Containers []Container // all kinds; names are unique in a pod

	Deleting time.Duration // since when it has a deletion timestamp
	Grace    time.Duration // how long its containers then have
	Gone     time.Duration // since when it is no longer there
	// Confirmed is the last moment at which the API server, asked for this pod, said that it is as it is here; 0 if it
	// was not asked.
	Confirmed time.Duration
	Lost      bool // it went while nobody watched, so that its last state was not seen
}

// Container is one container of a pod: its newest incarnation, and the one before. Each start makes a new incarnation.
type Container struct {
	Name string
	// MayRestart reports whether the kubelet may start it again after its end.
	MayRestart bool

	ID        string    // of the newest incarnation; empty if none has run
	StartedAt time.Time // when that began; zero if unknown
	End       *End      // nil while it runs
	Last      *End      // the end of the incarnation before, if known

	// NewSince is the last moment at which this incarnation was known not to exist.
	NewSince time.Duration
	// EndedSince is the last moment at which it was known not to have ended; meaningful once it has.
	EndedSince time.Duration
}

// End is how an incarnation of a container ended.
type End struct {
	ID         string // empty if the runtime did not say which container it was
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int
	Signal     int
	Reason     string // such as Completed, Error or OOMKilled
}

// lostSight is the kubelet's word for a container that it could not find: it may run, and the end is made up.
const lostSight = "ContainerStatusUnknown"

// sure reports whether the container's runtime told the kubelet of this end.
func (e *End) sure() bool {
	return e != nil && e.ID != "" && !e.FinishedAt.IsZero() && e.Reason != lostSight
}

// container returns the container with this name, or nil.
func (p *Pod) container(name string) *Container {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i]
		}
	}
	return nil
}

// Confirm returns the pod as one that the API server confirmed at a moment, by what it answered. It returns nil if the
// answer tells of another incarnation of a container, or of an end: then the change is on its way.
func Confirm(p *Pod, answer Pod, at time.Duration) *Pod {
	if p.UID != answer.UID || len(p.Containers) != len(answer.Containers) {
		return nil
	}
	for i := range p.Containers {
		known, now := &p.Containers[i], &answer.Containers[i]
		if known.Name != now.Name || known.ID != now.ID || (known.End == nil) != (now.End == nil) {
			return nil
		}
	}
	confirmed := *p
	confirmed.Confirmed = at
	return &confirmed
}
