package podproof

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// clockMargin is how much later than the lock a container must have started or ended to count as later. Both times
	// are from the clock of one machine; the margin is for clocks that are adjusted.
	clockMargin = time.Second
	// maxTruncation is by how much Kubernetes truncates times at most.
	maxTruncation = time.Second
	// absentFor is how long a pod must be missing to be suspicious: a watch lags behind.
	absentFor = time.Minute
	// overdueFor is how long a pod may exist after its containers should have ended.
	overdueFor = time.Minute
)

// Certainty is how certain it is that the holder has ended.
type Certainty int

// The certainties.
const (
	Nothing   Certainty = iota // nothing is known, for or against
	Runs                       // the kubelet reports that the holder's container runs
	Suspicion                  // it has probably ended
	Proof                      // it has
)

// String returns the certainty in one word.
func (c Certainty) String() string {
	return [...]string{"nothing", "runs", "suspicion", "proof"}[c]
}

// Finding is the conclusion about the holder of a lock. Only a suspicion and a proof have a cause.
type Finding struct {
	Certainty Certainty
	Cause     string // of a [metadata.Statement]
	Reason    string // a sentence without a full stop
	End       *End   // of the holder's container, nil if unknown
}

// Evidence is what is known about the pod of a record.
type Evidence struct {
	Pod      *Pod // with the record's UID; nil if there is none
	Namesake *Pod // another pod with the record's namespace and name; nil if there is none
	// Absent is how long the watch of the pod's namespace has run without a break and without the pod; 0 if it has not.
	Absent time.Duration
	Now    time.Duration // on the clock of [metadata.Seen]
}

// Judge concludes from the evidence whether the record's holder has ended.
func Judge(r *metadata.Record, s Evidence) Finding {
	process := r.Process
	if process == nil || process.Detached || r.Token == 0 || r.UUID == "" {
		return Finding{}
	}
	if process.PodUID == "" {
		return judgeByName(r, s)
	}
	if s.Pod != nil {
		return judgePod(r, s.Pod, s.Now)
	}
	return judgeMissing(process, s)
}

// judgeByName judges a record that has the name of its pod but not its UID. Another pod may have had the name before,
// so nothing is a proof.
func judgeByName(r *metadata.Record, s Evidence) Finding {
	if r.Process.PodNamespace == "" || r.Process.PodName == "" || s.Namesake == nil {
		return Finding{}
	}
	f := judgePod(r, s.Namesake, s.Now)
	if f.Certainty == Proof {
		f.Certainty = Suspicion
		f.Reason += "; the record does not name the pod's UID"
	}
	return f
}

// judgeMissing judges a record whose pod does not exist.
func judgeMissing(process *metadata.Process, s Evidence) Finding {
	switch {
	case s.Namesake != nil && s.Namesake.Static:
		return Finding{}
	case s.Namesake != nil && s.Namesake.Gone == Never && s.Absent >= absentFor:
		return suspicion(metadata.CausePodDeleted, "the pod with UID %s is gone and was not seen to end; "+
			"another one is named %s now", process.PodUID, podTitle(s.Namesake))
	case s.Absent >= absentFor:
		return suspicion(metadata.CausePodNeverSeen, "no pod with UID %s is there, and none was seen to end",
			process.PodUID)
	}
	return Finding{}
}

func judgePod(r *metadata.Record, p *Pod, now time.Duration) Finding {
	name := r.Process.PodName
	if p.Static || name != "" && name != p.Name ||
		r.Process.PodNamespace != "" && r.Process.PodNamespace != p.Namespace {
		return Finding{} // a record that contradicts itself proves nothing
	}
	f := judgeContainers(r, p)
	if f.Certainty == Proof {
		return f
	}
	if byState := judgeState(p, now); byState.Certainty == Suspicion {
		return byState
	}
	return f
}

// judgeState looks for suspicions in the state of a pod whose containers were running when last seen.
func judgeState(p *Pod, now time.Duration) Finding {
	switch {
	case p.Gone != Never && p.GoneUnseen:
		return suspicion(metadata.CausePodDeleted, "pod %s went while the API server was out of reach", podTitle(p))
	case p.Gone != Never && p.Disruption == "DeletionByPodGC":
		return suspicion(metadata.CausePodDeleted, "pod %s was deleted because its node no longer exists; whether its "+
			"containers ended was not seen", podTitle(p))
	case p.Gone != Never:
		return suspicion(metadata.CausePodDeleted, "pod %s was deleted; its containers ran when last seen", podTitle(p))
	case p.Reason == "NodeLost":
		return suspicion(metadata.CauseNodeNotReady, "the node of pod %s is lost", podTitle(p))
	case p.Deleting != Never && now-p.Deleting >= p.Grace+overdueFor:
		return suspicion(metadata.CauseNodeNotReady,
			"pod %s was told to end, and its node does not confirm that it did", podTitle(p))
	}
	return Finding{}
}

func suspicion(cause, how string, args ...any) Finding {
	return Finding{Certainty: Suspicion, Cause: cause, Reason: fmt.Sprintf(how, args...)}
}

func podTitle(p *Pod) string { return p.Namespace + "/" + p.Name }

// judgeContainers judges by what the kubelet reports about the containers.
func judgeContainers(r *metadata.Record, p *Pod) Finding {
	c := holderContainer(r.Process.Container, p)
	if last, ok := podEnded(p); ok {
		f := Finding{Certainty: Proof, Cause: metadata.CausePodEnded,
			Reason: fmt.Sprintf("the kubelet reports pod %s as %s, and the end of all its containers", podTitle(p),
				p.Phase)}
		if c != nil {
			f.End = c.End
		}
		return f.downgradedIf(orderDoubt(r, last))
	}
	switch {
	case c == nil || c.ID == "" && c.End == nil:
		return Finding{}
	case c.End == nil:
		return judgeRunning(r, p, c)
	default:
		return judgeEnded(r, p, c)
	}
}

// holderContainer returns the holder's container; nil if the record does not name it and there are several.
func holderContainer(name string, p *Pod) *Container {
	if name == "" && len(p.Containers) == 1 {
		return &p.Containers[0]
	}
	return p.container(name)
}

// podEnded reports whether the pod has ended for good, and when its last container did. The phase alone is not enough:
// when a node is gone, a controller marks its pods as failed although it knows nothing about their containers.
func podEnded(p *Pod) (last time.Time, ok bool) {
	if p.Phase != "Succeeded" && p.Phase != "Failed" {
		return time.Time{}, false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.ID == "" && c.End == nil {
			continue // it never ran
		}
		if !c.End.reportedByRuntime() || c.MayRestart && !p.KubeletEnded {
			return time.Time{}, false
		}
		if c.End.FinishedAt.After(last) {
			last = c.End.FinishedAt
		}
	}
	return last, !last.IsZero()
}

// orderDoubt returns a doubt if the lock was taken after the time at which its holder is said to have ended.
func orderDoubt(r *metadata.Record, end time.Time) string {
	if r.LockedAt.After(end.Add(maxTruncation + clockMargin)) {
		return "by the node's clock, that was before the lock was taken"
	}
	return ""
}

// judgeRunning judges a running container. It was restarted if its current incarnation started after the lock was
// taken.
func judgeRunning(r *metadata.Record, p *Pod, c *Container) Finding {
	if r.LockedAt.IsZero() || c.StartedAt.IsZero() || !r.LockedAt.Add(clockMargin).Before(c.StartedAt) {
		return Finding{Certainty: Runs}
	}
	f := Finding{Certainty: Proof, Cause: metadata.CauseContainerRestarted,
		Reason: fmt.Sprintf("the kubelet started container %s of pod %s again after the lock was taken", c.Name,
			podTitle(p))}
	if !c.Last.reportedByRuntime() {
		return f.downgradedIf("how it ended before is unknown")
	}
	if !r.LockedAt.Before(c.Last.StartedAt) {
		f.End = c.Last
	}
	return f.downgradedIf(clockDoubt(r, p, c.NewSince))
}

// judgeEnded judges a container that has ended. The kubelet may already have restarted it without having reported that.
func judgeEnded(r *metadata.Record, p *Pod, c *Container) Finding {
	f := Finding{Certainty: Proof, Cause: metadata.CauseContainerEnded, End: c.End,
		Reason: fmt.Sprintf("the kubelet reports the end of container %s of pod %s", c.Name, podTitle(p))}
	if !c.End.reportedByRuntime() {
		f.End = nil
		return f.downgradedIf("the kubelet lost track of it and does not know how it ended")
	}
	if !c.MayRestart {
		return f.downgradedIf(orderDoubt(r, c.End.FinishedAt))
	}
	switch finished := c.End.FinishedAt; {
	case r.LockedAt.IsZero():
		return f.downgradedIf("the record does not say when it was written, so that a later start may hold the lock")
	case orderDoubt(r, finished) != "":
		return Finding{} // taken by a later incarnation that is not reported yet
	case !r.LockedAt.Add(clockMargin).Before(finished):
		return f.downgradedIf("the lock was taken in the same moment, so that a later start may hold it")
	case r.LockedAt.Add(clockMargin).Before(c.End.StartedAt):
		f.Cause = metadata.CauseContainerRestarted // and it has ended again
		f.End = nil
	}
	return f.downgradedIf(clockDoubt(r, p, c.EndedSince))
}

// clockDoubt returns why the times alone do not prove in which incarnation of the container the lock was taken. It is
// empty if the change was watched: the hold was seen before since, the last moment before the change.
func clockDoubt(r *metadata.Record, p *Pod, since time.Duration) string {
	switch {
	case p.OwnClock:
		return "its runtime class may give it a clock of its own, so that the times do not compare"
	case since == Never || since < r.Seen.First:
		return "that was not watched, and clocks alone are no proof"
	}
	return ""
}

// downgradedIf returns the finding, as a mere suspicion if there is a doubt.
func (f Finding) downgradedIf(doubt string) Finding {
	if doubt != "" {
		f.Certainty = Suspicion
		f.Reason += "; " + doubt
	}
	return f
}
