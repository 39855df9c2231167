package podproof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// at is a time on the node's clock, in seconds after the container started.
func at(seconds float64) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// record is a lock taken 100.5 s after the container started, first seen a minute after the witness started watching.
func record() *metadata.Record {
	return &metadata.Record{
		Name: "billing", UUID: "00000000-0000-4000-8000-000000000001", Token: 7, LockedAt: at(100.5),
		Process: &metadata.Process{PodNamespace: "shop", PodName: "worker-0", PodUID: "u1", Container: "worker"},
		Seen:    metadata.Seen{First: time.Minute},
	}
}

// running is a pod whose only container has run since before the lock was taken.
func running() *podproof.Pod {
	return &podproof.Pod{
		Namespace: "shop", Name: "worker-0", UID: "u1", Phase: "Running",
		Deleting: podproof.Never, Gone: podproof.Never,
		Containers: []podproof.Container{{Name: "worker", MayRestart: true, ID: "c1", StartedAt: at(0),
			NewSince: podproof.Never, EndedSince: podproof.Never}},
	}
}

func end(id string, from, to float64) *podproof.End {
	return &podproof.End{ID: id, StartedAt: at(from), FinishedAt: at(to), ExitCode: 137, Reason: "OOMKilled"}
}

// podEnded is running after a watched end of its container.
func podEnded() *podproof.Pod {
	p := running()
	p.Containers[0].End = end("c1", 0, 200)
	p.Containers[0].EndedSince = 2 * time.Minute
	return p
}

// restarted is ended after a watched restart.
func restarted() *podproof.Pod {
	p := running()
	p.Containers[0] = podproof.Container{Name: "worker", MayRestart: true, ID: "c2", StartedAt: at(210),
		Last: end("c1", 0, 200), NewSince: 2 * time.Minute, EndedSince: podproof.Never}
	return p
}

// over is ended after the end of the whole pod, as a kubelet reports it.
func over() *podproof.Pod {
	p := podEnded()
	p.Phase = "Failed"
	p.KubeletEnded = true
	p.Containers[0].EndedSince = podproof.Never // not needed for a proof
	return p
}

// and returns the pod with one more container.
func and(p *podproof.Pod, c podproof.Container) *podproof.Pod {
	p.Containers = append(p.Containers, c)
	return p
}

func sidecar() podproof.Container {
	return podproof.Container{Name: "proxy", MayRestart: true, ID: "s1", StartedAt: at(1),
		NewSince: podproof.Never, EndedSince: podproof.Never}
}

// edit changes a record and a pod.
type edit func(*metadata.Record, *podproof.Pod)

func both(edits ...edit) edit {
	return func(r *metadata.Record, p *podproof.Pod) {
		for _, e := range edits {
			e(r, p)
		}
	}
}

func ofPod(change func(*podproof.Pod)) edit {
	return func(_ *metadata.Record, p *podproof.Pod) { change(p) }
}

func ofHolder(change func(*metadata.Process)) edit {
	return func(r *metadata.Record, _ *podproof.Pod) { change(r.Process) }
}

func lockedAt(seconds float64) edit {
	return func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(seconds) }
}

// ends lets the container with this index end, after two minutes of watching.
func ends(i int, e *podproof.End) edit {
	return ofPod(func(p *podproof.Pod) { p.Containers[i].End, p.Containers[i].EndedSince = e, 2*time.Minute })
}

// told sets how long ago the pod was told to terminate.
func told(ago time.Duration) edit {
	return ofPod(func(p *podproof.Pod) {
		p.Disruption = "DeletionByTaintManager"
		p.Deleting = now - ago
		p.Grace = 30 * time.Second
	})
}

const now = time.Hour

func TestJudge(t *testing.T) {
	none := both()
	noTime := func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = time.Time{} }
	noContainer := ofHolder(func(h *metadata.Process) { h.Container = "" })
	onlyUID := ofHolder(func(h *metadata.Process) { *h = metadata.Process{PodUID: "u1"} })
	gone := ofPod(func(p *podproof.Pod) { p.Gone = 3 * time.Minute })
	lost := ofPod(func(p *podproof.Pod) { p.GoneUnseen = true })
	failed := ofPod(func(p *podproof.Pod) { p.Phase = "Failed" })
	ownClock := ofPod(func(p *podproof.Pod) { p.OwnClock = true })
	onceOnly := ofPod(func(p *podproof.Pod) { p.Containers[0].MayRestart = false })
	endedSince := func(d time.Duration) edit {
		return ofPod(func(p *podproof.Pod) { p.Containers[0].EndedSince = d })
	}
	newSince := func(d time.Duration) edit {
		return ofPod(func(p *podproof.Pod) { p.Containers[0].NewSince = d })
	}
	outOfSight := ends(0, &podproof.End{ExitCode: 137, Reason: "ContainerStatusUnknown"})
	for _, c := range []struct {
		about string
		pod   *podproof.Pod
		edit  edit
		want  string // certainty, and cause
		how   string // part of the sentence
	}{
		// proofs
		{"the container runs", running(), none, "runs", ""},
		{"the container ended", podEnded(), none, "proof container_ended", ""},
		{"the container was started again", restarted(), none, "proof container_restarted", ""},
		{"started again, and ended again", restarted(), ends(0, end("c2", 210, 215)), "proof container_restarted", ""},
		{"the pod failed", over(), none, "proof pod_ended", ""},
		{"the pod succeeded", over(), ofPod(func(p *podproof.Pod) { p.Phase = "Succeeded" }), "proof pod_ended", ""},
		{"the pod was evicted by its kubelet", over(), ofPod(func(p *podproof.Pod) { p.Reason = "Evicted" }),
			"proof pod_ended", ""},
		{"the pod is gone, and its container ended before", podEnded(), gone, "proof container_ended", ""},
		{"the pod is gone, and ended before", over(), gone, "proof pod_ended", ""},
		{"a container that is never started again ended, unwatched", podEnded(),
			both(onceOnly, endedSince(podproof.Never)), "proof container_ended", ""},
		{"the same beside a sidecar that runs", and(podEnded(), sidecar()), onceOnly, "proof container_ended", ""},
		{"the container of several ended", and(podEnded(), sidecar()), none, "proof container_ended", ""},
		{"no container named, and there is one", podEnded(), noContainer, "proof container_ended", ""},
		{"no container named, and all ended", and(over(), sidecar()), both(noContainer, ends(1, end("s1", 1, 201))),
			"proof pod_ended", ""},
		{"an init container that holds a lock ended", and(running(), sidecar()), both(ends(1, end("s1", 1, 200)),
			ofHolder(func(h *metadata.Process) { h.Container = "proxy" })), "proof container_ended", ""},
		{"only the UID is known, and there is one container", podEnded(), onlyUID, "proof container_ended", ""},

		// controllers that do not know about the containers
		{"marked as failed by the garbage collection of pods", running(), failed, "runs", ""},
		{"the same, and then deleted", running(), both(failed, gone,
			ofPod(func(p *podproof.Pod) { p.Disruption = "DeletionByPodGC" })), "suspicion pod_deleted",
			"its node no longer"},
		{"marked as failed while a container was to be started again", over(),
			ofPod(func(p *podproof.Pod) { p.KubeletEnded = false }), "suspicion container_ended", "not watched"},
		{"marked as failed with one of two containers running", and(over(), sidecar()), none,
			"suspicion container_ended", "not watched"},
		{"failed without a word about containers", running(), both(failed, ofPod(func(p *podproof.Pod) {
			p.Containers[0] = podproof.Container{Name: "worker", MayRestart: true}
		})), "nothing", ""},
		{"the node is lost", running(), ofPod(func(p *podproof.Pod) { p.Reason = "NodeLost" }),
			"suspicion node_not_ready", ""},
		{"told to end just now", running(), told(89 * time.Second), "runs", ""},
		{"told to end long ago", running(), told(90 * time.Second), "suspicion node_not_ready", "does not confirm"},
		{"deleted by force", running(), gone, "suspicion pod_deleted", "ran when last seen"},
		{"gone while the API server was out of reach", running(), both(gone, lost), "suspicion pod_deleted",
			"out of reach"},

		// what the kubelet does not know
		{"the kubelet lost track of the container", podEnded(), outOfSight, "suspicion container_ended", "lost track"},
		{"the same in a pod that failed", over(), outOfSight, "suspicion container_ended", "lost track"},
		{"started again, and the end before is unknown", restarted(),
			ofPod(func(p *podproof.Pod) { p.Containers[0].Last = nil }), "suspicion container_restarted", "unknown"},

		// which start holds the lock
		{"taken by the present start", restarted(), lockedAt(211), "runs", ""},
		{"taken in the second of the present start", restarted(), lockedAt(209.5), "runs", ""},
		{"taken by a start that is still to be reported", podEnded(), lockedAt(202.5), "nothing", ""},
		{"taken in the second of the end", podEnded(), lockedAt(200.9), "suspicion container_ended", "same moment"},
		{"taken within the margin of clocks before the end", podEnded(), lockedAt(199.5), "suspicion container_ended",
			"same moment"},
		{"the restart was not watched", restarted(), newSince(podproof.Never), "suspicion container_restarted",
			"not watched"},
		{"the present start was known before the lock was seen", restarted(), newSince(59 * time.Second),
			"suspicion container_restarted", "not watched"},
		{"the end was known before the lock was seen", podEnded(), endedSince(59 * time.Second),
			"suspicion container_ended", "not watched"},
		{"a runtime class with a clock of its own", restarted(), ownClock, "suspicion container_restarted",
			"clock of its own"},
		{"a runtime class, and the pod ended", over(), ownClock, "proof pod_ended", ""},
		{"no locked_at, and the container ended", podEnded(), noTime, "suspicion container_ended", "does not say when"},
		{"no locked_at, and the container was started again", restarted(), noTime, "runs", ""},
		{"no locked_at, and the pod ended", over(), noTime, "proof pod_ended", ""},
		{"taken after the pod had ended", over(), lockedAt(250), "suspicion pod_ended", "before the lock"},
		{"taken after a container had ended that is never started again", podEnded(), both(lockedAt(250), onceOnly),
			"suspicion container_ended", "before the lock"},

		// incomplete or contradictory records
		{"no container named of several, and one ended", and(podEnded(), sidecar()), noContainer, "nothing", ""},
		{"a container that is not in the pod", podEnded(),
			ofHolder(func(h *metadata.Process) { h.Container = "other" }),
			"nothing", ""},
		{"another name under this UID", over(), ofHolder(func(h *metadata.Process) { h.PodName = "worker-1" }),
			"nothing", ""},
		{"another namespace under this UID", over(), ofHolder(func(h *metadata.Process) { h.PodNamespace = "bank" }),
			"nothing", ""},
		{"a static pod", over(), ofPod(func(p *podproof.Pod) { p.Static = true }), "nothing", ""},
		{"work that outlives its process", over(), ofHolder(func(h *metadata.Process) { h.Detached = true }),
			"nothing", ""},
		{"no word about a process", over(), func(r *metadata.Record, _ *podproof.Pod) { r.Process = nil }, "nothing",
			""},
		{"a lock that nobody holds", over(), func(r *metadata.Record, _ *podproof.Pod) { r.Token = 0 }, "nothing", ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := record()
			c.edit(r, c.pod)
			check(t, podproof.Judge(r, podproof.Evidence{Pod: c.pod, Now: now}), c.want, c.how)
		})
	}
}

func check(t *testing.T, v podproof.Finding, want, how string) {
	t.Helper()
	if got := strings.TrimSpace(v.Certainty.String() + " " + v.Cause); got != want || !strings.Contains(v.Reason, how) {
		t.Errorf("got %s (%s), want %s (… %s …)", got, v.Reason, want, how)
	}
	if said := v.Reason != ""; said != (v.Certainty >= podproof.Suspicion) {
		t.Errorf("%s says %q", v.Certainty, v.Reason)
	}
}

func TestJudgeWithoutThePod(t *testing.T) {
	gone := running()
	gone.Gone = time.Minute
	other := running()
	other.UID = "u2"
	otherGone := running()
	otherGone.UID = "u2"
	otherGone.Gone = time.Minute
	static := running()
	static.UID = "u2"
	static.Static = true
	for _, c := range []struct {
		about string
		uid   string
		sight podproof.Evidence
		want  string
		how   string
	}{
		{"not looked for", "u1", podproof.Evidence{}, "nothing", ""},
		{"not there for a moment", "u1", podproof.Evidence{Absent: 59 * time.Second}, "nothing", ""},
		{"not there", "u1", podproof.Evidence{Absent: time.Minute}, "suspicion pod_never_seen", "UID u1"},
		{"another pod has its name", "u1", podproof.Evidence{Namesake: other, Absent: time.Minute},
			"suspicion pod_deleted", "another one"},
		{"another pod has its name, for a moment", "u1", podproof.Evidence{Namesake: other, Absent: time.Second},
			"nothing", ""},
		{"another pod had its name", "u1", podproof.Evidence{Namesake: otherGone, Absent: time.Minute},
			"suspicion pod_never_seen", ""},
		{"a static pod has another UID than its image in the API", "u1",
			podproof.Evidence{Namesake: static, Absent: time.Hour}, "nothing", ""},
		{"no UID, and no pod", "", podproof.Evidence{Absent: time.Hour}, "nothing", ""},
		{"no UID, and the pod runs", "", podproof.Evidence{Namesake: running()}, "runs", ""},
		{"no UID, and the pod ended", "", podproof.Evidence{Namesake: over()}, "suspicion pod_ended", "does not name"},
		{"no UID, and its container ended", "", podproof.Evidence{Namesake: podEnded()}, "suspicion container_ended",
			"does not name"},
		{"no UID, and the pod is gone", "", podproof.Evidence{Namesake: gone}, "suspicion pod_deleted", ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := record()
			r.Process.PodUID = c.uid
			check(t, podproof.Judge(r, c.sight), c.want, c.how)
		})
	}
}

func TestHoldersContainerEnd(t *testing.T) {
	before := restarted()
	before.Containers[0].Last = end("c2", 150, 200)
	for about, c := range map[string]struct {
		pod  *podproof.Pod
		want string // id of the container
	}{
		"ended":             {podEnded(), "c1"},
		"started again":     {restarted(), "c1"},
		"the pod ended":     {over(), "c1"},
		"two starts before": {before, ""},
	} {
		v := podproof.Judge(record(), podproof.Evidence{Pod: c.pod, Now: time.Hour})
		got := ""
		if v.End != nil {
			got = v.End.ID
		}
		if v.Certainty != podproof.Proof || got != c.want {
			t.Errorf("%s: %v by the end of %q, want that of %q", about, v.Certainty, got, c.want)
		}
	}
}
