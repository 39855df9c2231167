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
	// second is the most that the times of Kubernetes are truncated by.
	second = time.Second
	// AbsentFor is how long a pod has to be missing to be suspicious: a watch lags behind.
	AbsentFor = time.Minute
	// OverdueFor is how long a pod may exist after its containers should have ended.
	OverdueFor = time.Minute
)

// Certainty is how sure a verdict is that the holder has ended.
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

// Verdict is what a pod shows about the holder of a lock. Only a suspicion and a proof have a cause.
type Verdict struct {
	Certainty Certainty
	Cause     string // of a [metadata.Statement]
	How       string // a sentence without a full stop
	End       *End   // of the holder's container, nil if unknown
}

// Sight is the result of looking for a record's pod.
type Sight struct {
	Pod      *Pod // with the record's UID; nil if there is none
	Namesake *Pod // another pod with the record's namespace and name; nil if there is none
	// Absent is how long the watch of the pod's namespace has run without a break and without the pod; 0 if it has not.
	Absent time.Duration
	Now    time.Duration // on the clock of [metadata.Seen]
}

// Judge returns what is known about the end of the record's holder.
func Judge(r *metadata.Record, s Sight) Verdict {
	process := r.Process
	if process == nil || process.Detached || r.Token == 0 || r.UUID == "" {
		return Verdict{}
	}
	if process.PodUID == "" {
		return withoutUID(r, s)
	}
	if s.Pod != nil {
		return judgePod(r, s.Pod, s.Now)
	}
	return absent(process, s)
}

// withoutUID judges a record that has the name of its pod but not its UID: another pod may have had the name before, so
// nothing is proof.
func withoutUID(r *metadata.Record, s Sight) Verdict {
	if r.Process.PodNamespace == "" || r.Process.PodName == "" || s.Namesake == nil {
		return Verdict{}
	}
	v := judgePod(r, s.Namesake, s.Now)
	if v.Certainty == Proof {
		v.Certainty = Suspicion
		v.How += "; the record does not name the pod's UID"
	}
	return v
}

// absent judges a pod that does not exist.
func absent(process *metadata.Process, s Sight) Verdict {
	switch {
	case s.Namesake != nil && s.Namesake.Static:
		return Verdict{}
	case s.Namesake != nil && s.Namesake.Gone == Never && s.Absent >= AbsentFor:
		return suspect(metadata.CausePodDeleted, "the pod with UID %s is gone and was not seen to end; "+
			"another one is named %s now", process.PodUID, title(s.Namesake))
	case s.Absent >= AbsentFor:
		return suspect(metadata.CausePodNeverSeen, "no pod with UID %s is there, and none was seen to end",
			process.PodUID)
	}
	return Verdict{}
}

func judgePod(r *metadata.Record, p *Pod, now time.Duration) Verdict {
	name := r.Process.PodName
	if p.Static || name != "" && name != p.Name ||
		r.Process.PodNamespace != "" && r.Process.PodNamespace != p.Namespace {
		return Verdict{} // a record that contradicts itself proves nothing
	}
	v := judgeContainers(r, p)
	if v.Certainty == Proof {
		return v
	}
	if byState := judgeState(p, now); byState.Certainty == Suspicion {
		return byState
	}
	return v
}

// judgeState finds suspicions about a pod whose containers ran when last seen.
func judgeState(p *Pod, now time.Duration) Verdict {
	switch {
	case p.Gone != Never && p.Lost:
		return suspect(metadata.CausePodDeleted, "pod %s went while the API server was out of reach", title(p))
	case p.Gone != Never && p.Disruption == "DeletionByPodGC":
		return suspect(metadata.CausePodDeleted, "pod %s was deleted because its node no longer exists; whether its "+
			"containers ended was not seen", title(p))
	case p.Gone != Never:
		return suspect(metadata.CausePodDeleted, "pod %s was deleted; its containers ran when last seen", title(p))
	case p.Reason == "NodeLost":
		return suspect(metadata.CauseNodeNotReady, "the node of pod %s is lost", title(p))
	case p.Deleting != Never && now-p.Deleting >= p.Grace+OverdueFor:
		return suspect(metadata.CauseNodeNotReady, "pod %s was told to end, and its node does not confirm that it did",
			title(p))
	}
	return Verdict{}
}

func suspect(cause, how string, args ...any) Verdict {
	return Verdict{Certainty: Suspicion, Cause: cause, How: fmt.Sprintf(how, args...)}
}

func title(p *Pod) string { return p.Namespace + "/" + p.Name }

// judgeContainers judges by the kubelet's report about the containers.
func judgeContainers(r *metadata.Record, p *Pod) Verdict {
	c := holder(r.Process.Container, p)
	if last, ok := ended(p); ok {
		v := Verdict{Certainty: Proof, Cause: metadata.CausePodEnded,
			How: fmt.Sprintf("the kubelet reports pod %s as %s, and the end of all its containers", title(p), p.Phase)}
		if c != nil {
			v.End = c.End
		}
		return v.unless(late(r, last))
	}
	switch {
	case c == nil || c.ID == "" && c.End == nil:
		return Verdict{}
	case c.End == nil:
		return judgeRunning(r, p, c)
	default:
		return judgeEnded(r, p, c)
	}
}

// holder returns the holder's container; nil if the record does not name it and there are several.
func holder(name string, p *Pod) *Container {
	if name == "" && len(p.Containers) == 1 {
		return &p.Containers[0]
	}
	return p.container(name)
}

// ended reports whether the pod has ended for good, and when its last container did. A controller that knows nothing
// about its containers also marks a pod as failed, when its node is gone.
func ended(p *Pod) (last time.Time, ok bool) {
	if p.Phase != "Succeeded" && p.Phase != "Failed" {
		return time.Time{}, false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.ID == "" && c.End == nil {
			continue // it never ran
		}
		if !c.End.sure() || c.MayRestart && !p.KubeletEnded {
			return time.Time{}, false
		}
		if c.End.FinishedAt.After(last) {
			last = c.End.FinishedAt
		}
	}
	return last, !last.IsZero()
}

// late returns the doubt about a record that was written after its supposed writer had ended.
func late(r *metadata.Record, end time.Time) string {
	if r.LockedAt.After(end.Add(second + clockMargin)) {
		return "by the node's clock, that was before the lock was taken"
	}
	return ""
}

// judgeRunning judges a running container: its current incarnation may have started after the lock was taken.
func judgeRunning(r *metadata.Record, p *Pod, c *Container) Verdict {
	if r.LockedAt.IsZero() || c.StartedAt.IsZero() || !r.LockedAt.Add(clockMargin).Before(c.StartedAt) {
		return Verdict{Certainty: Runs}
	}
	v := Verdict{Certainty: Proof, Cause: metadata.CauseContainerRestarted,
		How: fmt.Sprintf("the kubelet started container %s of pod %s again after the lock was taken", c.Name, title(p))}
	if !c.Last.sure() {
		return v.unless("how it ended before is unknown")
	}
	if !r.LockedAt.Before(c.Last.StartedAt) {
		v.End = c.Last
	}
	return v.unless(doubt(r, p, c.NewSince))
}

// judgeEnded judges a container that has ended. The kubelet may have restarted it without having reported so yet.
func judgeEnded(r *metadata.Record, p *Pod, c *Container) Verdict {
	v := Verdict{Certainty: Proof, Cause: metadata.CauseContainerEnded, End: c.End,
		How: fmt.Sprintf("the kubelet reports the end of container %s of pod %s", c.Name, title(p))}
	if !c.End.sure() {
		v.End = nil
		return v.unless("the kubelet lost sight of it and does not know how it ended")
	}
	if !c.MayRestart {
		return v.unless(late(r, c.End.FinishedAt))
	}
	switch finished := c.End.FinishedAt; {
	case r.LockedAt.IsZero():
		return v.unless("the record does not say when it was written, so that a later start may hold the lock")
	case late(r, finished) != "":
		return Verdict{} // taken by a later incarnation that is not reported yet
	case !r.LockedAt.Add(clockMargin).Before(finished):
		return v.unless("the lock was taken in the same moment, so that a later start may hold it")
	case r.LockedAt.Add(clockMargin).Before(c.End.StartedAt):
		v.Cause = metadata.CauseContainerRestarted // and it has ended again
		v.End = nil
	}
	return v.unless(doubt(r, p, c.EndedSince))
}

// doubt returns why only the node's clock shows in which incarnation of the container the lock was taken. It is empty
// if since, the last moment before the change, came after the hold was seen.
func doubt(r *metadata.Record, p *Pod, since time.Duration) string {
	switch {
	case p.OwnClock:
		return "its runtime class may give it a clock of its own, so that the times do not compare"
	case since == Never || since < r.Seen.First:
		return "that was not watched, and clocks alone are no proof"
	}
	return ""
}

// unless returns the verdict, as a suspicion if there is a doubt.
func (v Verdict) unless(doubt string) Verdict {
	if doubt != "" {
		v.Certainty = Suspicion
		v.How += "; " + doubt
	}
	return v
}
