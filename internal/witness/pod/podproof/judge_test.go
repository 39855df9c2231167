package podproof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// at is a time of day on the node, in seconds after the container began.
func at(seconds float64) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// record is a lock taken 100.5 s after the container began, and first seen a minute after the witness began to watch.
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

// ended is running after the end of its container, which was watched.
func ended() *podproof.Pod {
	p := running()
	p.Containers[0].End = end("c1", 0, 200)
	p.Containers[0].EndedSince = 2 * time.Minute
	return p
}

// restarted is ended after the next start, which was watched, too.
func restarted() *podproof.Pod {
	p := running()
	p.Containers[0] = podproof.Container{Name: "worker", MayRestart: true, ID: "c2", StartedAt: at(210),
		Last: end("c1", 0, 200), NewSince: 2 * time.Minute, EndedSince: podproof.Never}
	return p
}

// over is ended as a whole, as a kubelet reports it.
func over() *podproof.Pod {
	p := ended()
	p.Phase = "Failed"
	p.KubeletEnded = true
	p.Containers[0].EndedSince = podproof.Never // which is not needed
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

func TestJudge(t *testing.T) {
	const now = time.Hour
	for _, c := range []struct {
		about string
		pod   *podproof.Pod
		edit  func(*metadata.Record, *podproof.Pod)
		want  string // certainty, and cause
		how   string // part of the sentence
	}{
		// what proves
		{about: "the container runs", pod: running(), want: "runs"},
		{about: "the container ended", pod: ended(), want: "proof container_ended"},
		{about: "the container was started again", pod: restarted(), want: "proof container_restarted"},
		{about: "started again, and ended again", pod: restarted(), want: "proof container_restarted",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].End = end("c2", 210, 215)
				p.Containers[0].EndedSince = 3 * time.Minute
			}},
		{about: "the pod failed", pod: over(), want: "proof pod_ended"},
		{about: "the pod succeeded", pod: over(), want: "proof pod_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Phase = "Succeeded" }},
		{about: "the pod was evicted by its kubelet", pod: over(), want: "proof pod_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Reason = "Evicted" }},
		{about: "the pod is gone, and its container ended before", pod: ended(), want: "proof container_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Gone = 3 * time.Minute }},
		{about: "the pod is gone, and ended before", pod: over(), want: "proof pod_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Gone = 3 * time.Minute }},
		{about: "a container that is never started again ended, unwatched", pod: ended(), want: "proof container_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].MayRestart = false
				p.Containers[0].EndedSince = podproof.Never
			}},
		{about: "the same beside a sidecar that runs", pod: and(ended(), sidecar()), want: "proof container_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Containers[0].MayRestart = false }},
		{about: "the container of several ended", pod: and(ended(), sidecar()), want: "proof container_ended"},
		{about: "no container named, and there is one", pod: ended(), want: "proof container_ended",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.Container = "" }},
		{about: "no container named, and all ended", pod: and(over(), sidecar()), want: "proof pod_ended",
			edit: func(r *metadata.Record, p *podproof.Pod) {
				r.Process.Container = ""
				p.Containers[1].End = end("s1", 1, 201)
			}},
		{about: "an init container that holds a lock ended", pod: and(running(), sidecar()),
			want: "proof container_ended", edit: func(r *metadata.Record, p *podproof.Pod) {
				r.Process.Container = "proxy"
				p.Containers[1].End = end("s1", 1, 200)
				p.Containers[1].EndedSince = 2 * time.Minute
			}},
		{about: "only the UID is known, and there is one container", pod: ended(), want: "proof container_ended",
			edit: func(r *metadata.Record, _ *podproof.Pod) { *r.Process = metadata.Process{PodUID: "u1"} }},

		// controllers that know nothing of the containers
		{about: "marked as failed by the garbage collection of pods", pod: running(), want: "runs",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Phase = "Failed" }},
		{about: "the same, and then deleted", pod: running(), want: "suspicion pod_deleted", how: "its node no longer",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Phase = "Failed"
				p.Disruption = "DeletionByPodGC"
				p.Gone = 3 * time.Minute
			}},
		{about: "marked as failed while a container was to be started again", pod: over(),
			want: "suspicion container_ended", how: "not watched",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.KubeletEnded = false }},
		{about: "marked as failed with one of two containers running", pod: and(over(), sidecar()),
			want: "suspicion container_ended", how: "not watched"},
		{about: "failed without a word about containers", pod: running(), want: "nothing",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Phase = "Failed"
				p.Containers[0] = podproof.Container{Name: "worker", MayRestart: true}
			}},
		{about: "the node is lost", pod: running(), want: "suspicion node_not_ready",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Reason = "NodeLost" }},
		{about: "told to end just now", pod: running(), want: "runs",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Disruption = "DeletionByTaintManager"
				p.Deleting = now - 89*time.Second
				p.Grace = 30 * time.Second
			}},
		{about: "told to end long ago", pod: running(), want: "suspicion node_not_ready", how: "does not confirm",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Deleting = now - 90*time.Second
				p.Grace = 30 * time.Second
			}},
		{about: "deleted by force", pod: running(), want: "suspicion pod_deleted", how: "ran when last seen",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Gone = 3 * time.Minute }},
		{about: "gone while the API server was out of reach", pod: running(), want: "suspicion pod_deleted",
			how: "out of reach", edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Gone = 3 * time.Minute
				p.Lost = true
			}},

		// what the kubelet does not know
		{about: "the kubelet lost sight of the container", pod: ended(), want: "suspicion container_ended",
			how: "lost sight", edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].End = &podproof.End{ExitCode: 137, Reason: "ContainerStatusUnknown"}
			}},
		{about: "the same in a pod that failed", pod: over(), want: "suspicion container_ended", how: "lost sight",
			edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].End = &podproof.End{ExitCode: 137, Reason: "ContainerStatusUnknown"}
			}},
		{about: "started again, and the end before is unknown", pod: restarted(),
			want: "suspicion container_restarted", how: "unknown",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Containers[0].Last = nil }},

		// which start holds the lock
		{about: "taken by the present start", pod: restarted(), want: "runs",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(211) }},
		{about: "taken in the second of the present start", pod: restarted(), want: "runs",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(209.5) }},
		{about: "taken by a start that is still to be reported", pod: ended(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(202.5) }},
		{about: "taken in the second of the end", pod: ended(), want: "suspicion container_ended", how: "same moment",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(200.9) }},
		{about: "taken within the margin of clocks before the end", pod: ended(), want: "suspicion container_ended",
			how: "same moment", edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(199.5) }},
		{about: "the restart was not watched", pod: restarted(), want: "suspicion container_restarted",
			how: "not watched", edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].NewSince = podproof.Never
			}},
		{about: "the present start was known before the lock was seen", pod: restarted(),
			want: "suspicion container_restarted", how: "not watched",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Containers[0].NewSince = 59 * time.Second }},
		{about: "the end was known before the lock was seen", pod: ended(), want: "suspicion container_ended",
			how: "not watched", edit: func(_ *metadata.Record, p *podproof.Pod) {
				p.Containers[0].EndedSince = 59 * time.Second
			}},
		{about: "a runtime class with a clock of its own", pod: restarted(), want: "suspicion container_restarted",
			how: "clock of its own", edit: func(_ *metadata.Record, p *podproof.Pod) { p.OwnClock = true }},
		{about: "a runtime class, and the pod ended", pod: over(), want: "proof pod_ended",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.OwnClock = true }},
		{about: "no locked_at, and the container ended", pod: ended(), want: "suspicion container_ended",
			how: "does not say when", edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = time.Time{} }},
		{about: "no locked_at, and the container was started again", pod: restarted(), want: "runs",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = time.Time{} }},
		{about: "no locked_at, and the pod ended", pod: over(), want: "proof pod_ended",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = time.Time{} }},
		{about: "taken after the pod had ended", pod: over(), want: "suspicion pod_ended", how: "before the lock",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.LockedAt = at(250) }},
		{about: "taken after a container had ended that is never started again", pod: ended(),
			want: "suspicion container_ended", how: "before the lock",
			edit: func(r *metadata.Record, p *podproof.Pod) {
				r.LockedAt = at(250)
				p.Containers[0].MayRestart = false
			}},

		// records that do not say enough, or contradict themselves
		{about: "no container named of several, and one ended", pod: and(ended(), sidecar()), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.Container = "" }},
		{about: "a container that is not in the pod", pod: ended(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.Container = "other" }},
		{about: "another name under this UID", pod: over(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.PodName = "worker-1" }},
		{about: "another namespace under this UID", pod: over(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.PodNamespace = "bank" }},
		{about: "a static pod", pod: over(), want: "nothing",
			edit: func(_ *metadata.Record, p *podproof.Pod) { p.Static = true }},
		{about: "work that outlives its process", pod: over(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process.Detached = true }},
		{about: "no word about a process", pod: over(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Process = nil }},
		{about: "a lock that nobody holds", pod: over(), want: "nothing",
			edit: func(r *metadata.Record, _ *podproof.Pod) { r.Token = 0 }},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := record()
			if c.edit != nil {
				c.edit(r, c.pod)
			}
			check(t, podproof.Judge(r, podproof.Sight{Pod: c.pod, Now: now}), c.want, c.how)
		})
	}
}

func check(t *testing.T, v podproof.Verdict, want, how string) {
	t.Helper()
	if got := strings.TrimSpace(v.Certainty.String() + " " + v.Cause); got != want || !strings.Contains(v.How, how) {
		t.Errorf("got %s (%s), want %s (… %s …)", got, v.How, want, how)
	}
	if said := v.How != ""; said != (v.Certainty >= podproof.Suspicion) {
		t.Errorf("%s says %q", v.Certainty, v.How)
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
		sight podproof.Sight
		want  string
		how   string
	}{
		{"not looked for", "u1", podproof.Sight{}, "nothing", ""},
		{"not there for a moment", "u1", podproof.Sight{Absent: 59 * time.Second}, "nothing", ""},
		{"not there", "u1", podproof.Sight{Absent: time.Minute}, "suspicion pod_never_seen", "UID u1"},
		{"another pod has its name", "u1", podproof.Sight{Namesake: other, Absent: time.Minute},
			"suspicion pod_deleted", "another one"},
		{"another pod has its name, for a moment", "u1", podproof.Sight{Namesake: other, Absent: time.Second},
			"nothing", ""},
		{"another pod had its name", "u1", podproof.Sight{Namesake: otherGone, Absent: time.Minute},
			"suspicion pod_never_seen", ""},
		{"a static pod has another UID than its image in the API", "u1",
			podproof.Sight{Namesake: static, Absent: time.Hour}, "nothing", ""},
		{"no UID, and no pod", "", podproof.Sight{Absent: time.Hour}, "nothing", ""},
		{"no UID, and the pod runs", "", podproof.Sight{Namesake: running()}, "runs", ""},
		{"no UID, and the pod ended", "", podproof.Sight{Namesake: over()}, "suspicion pod_ended", "does not name"},
		{"no UID, and its container ended", "", podproof.Sight{Namesake: ended()}, "suspicion container_ended",
			"does not name"},
		{"no UID, and the pod is gone", "", podproof.Sight{Namesake: gone}, "suspicion pod_deleted", ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := record()
			r.Process.PodUID = c.uid
			check(t, podproof.Judge(r, c.sight), c.want, c.how)
		})
	}
}

func TestTheEndOfTheHolderIsTold(t *testing.T) {
	before := restarted()
	before.Containers[0].Last = end("c2", 150, 200)
	for about, c := range map[string]struct {
		pod  *podproof.Pod
		want string // id of the container
	}{
		"ended":             {ended(), "c1"},
		"started again":     {restarted(), "c1"},
		"the pod ended":     {over(), "c1"},
		"two starts before": {before, ""},
	} {
		v := podproof.Judge(record(), podproof.Sight{Pod: c.pod, Now: time.Hour})
		got := ""
		if v.End != nil {
			got = v.End.ID
		}
		if v.Certainty != podproof.Proof || got != c.want {
			t.Errorf("%s: %v by the end of %q, want that of %q", about, v.Certainty, got, c.want)
		}
	}
}
