// Package podproof concludes, from what the Kubernetes API server reports about a pod, whether the holder of a lock in
// it has ended: a proof, a suspicion, or nothing. Only what a kubelet has observed is proof, because a kubelet that is
// cut off keeps its containers running: docs/adr/0014-what-a-witness-of-kubernetes-believes.md.
//
// The package is pure: no clock, no I/O, no Kubernetes.
package podproof

import (
	"time"
)

// Never is the moment of an event that has not been observed.
const Never = time.Duration(-1)

// Pod is a pod as it was last seen. Times of day are those of its node, truncated to seconds; durations are
// moments on the observer's clock, [Never] if not observed.
type Pod struct {
	Namespace string
	Name      string
	UID       string

	Phase      string // Pending, Running, Succeeded, Failed or Unknown
	Reason     string // of the phase, such as Evicted or NodeLost
	Disruption string // why the pod is being ended: the reason of its condition DisruptionTarget
	// KubeletEnded reports whether the kubelet itself set the phase. It then sets the condition Ready with the reason
	// PodCompleted or PodFailed, which no controller does.
	KubeletEnded bool
	// Static pods have an identity that may be reused.
	Static bool
	// OwnClock reports whether the containers may have a different clock than the node, as in a virtual machine.
	OwnClock bool

	Containers []Container // all kinds; names are unique in a pod

	Deleting time.Duration // since when it has a deletion timestamp
	Grace    time.Duration // how long its containers then have
	Gone     time.Duration // since when it no longer exists
	// Confirmed is the last moment at which a read of this pod, past all caches, returned this state; 0 without one.
	Confirmed  time.Duration
	GoneUnseen bool // it was deleted while unwatched, so its last state is unknown
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

// unknownStatus is the reason that the kubelet gives for a container that it lost track of. The container may still
// run: the kubelet made the end up.
const unknownStatus = "ContainerStatusUnknown"

// reportedByRuntime reports whether the kubelet has this end from the container runtime.
func (e *End) reportedByRuntime() bool {
	return e != nil && e.ID != "" && !e.FinishedAt.IsZero() && e.Reason != unknownStatus
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

// Confirm returns the pod, confirmed by an answer of the API server to a request at that moment. It returns nil if the
// answer differs, because a container was restarted or has ended: the watch is about to report the change.
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

// Observe returns the current pod, with moments set by comparison with before, its state when last seen, nil if it is
// new. before was still true at the moment confirmed.
func Observe(before *Pod, now Pod, confirmed, at time.Duration) *Pod {
	now.Gone = Never
	if now.Deleting != Never && before != nil && before.Deleting != Never {
		now.Deleting = before.Deleting
	} else if now.Deleting != Never {
		now.Deleting = at
	}
	if before != nil {
		now.Confirmed = before.Confirmed // changes since then had not happened yet
		confirmed = max(confirmed, before.Confirmed)
	}
	for i := range now.Containers {
		now.Containers[i].observe(before, confirmed)
	}
	return &now
}

// observe sets since when the incarnation has existed and since when it has ended.
func (c *Container) observe(before *Pod, confirmed time.Duration) {
	c.NewSince = Never
	c.EndedSince = Never
	if before == nil {
		return
	}
	c.NewSince = confirmed
	c.EndedSince = confirmed
	if was := before.container(c.Name); was != nil && was.ID == c.ID {
		c.NewSince = was.NewSince
		if was.End != nil {
			c.EndedSince = was.EndedSince
		}
	}
}

// MarkGone returns the pod as one that no longer exists.
func MarkGone(p *Pod, at time.Duration, lost bool) *Pod {
	gone := *p
	gone.Gone = at
	gone.GoneUnseen = lost
	return &gone
}
