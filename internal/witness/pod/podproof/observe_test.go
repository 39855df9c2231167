package podproof_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
)

// A fact about a pod is dated by when the opposite was last known.
func TestObserve(t *testing.T) {
	waiting := running()
	waiting.Containers[0] = podproof.Container{Name: "worker", MayRestart: true}
	for _, c := range []struct {
		about     string
		seen      []*podproof.Pod // at 1, 2, 3 … minutes, without a break
		lost      bool            // nothing was heard between the last two
		isNew     time.Duration   // since when the container's start is new
		sinceEnds time.Duration   // since when it has ended
	}{
		{"found running", []*podproof.Pod{running()}, false, podproof.Never, podproof.Never},
		{"found ended", []*podproof.Pod{podEnded()}, false, podproof.Never, podproof.Never},
		{"started", []*podproof.Pod{waiting, running()}, false, 2 * time.Minute, 2 * time.Minute},
		{"runs on", []*podproof.Pod{waiting, running(), running()}, false, 2 * time.Minute, 3 * time.Minute},
		{"ended", []*podproof.Pod{running(), podEnded()}, false, podproof.Never, 2 * time.Minute},
		{"has ended", []*podproof.Pod{running(), podEnded(), podEnded()}, false, podproof.Never, 2 * time.Minute},
		{"started again", []*podproof.Pod{running(), restarted()}, false, 2 * time.Minute, 2 * time.Minute},
		{"started again after a while", []*podproof.Pod{running(), podEnded(), restarted()}, false, 3 * time.Minute,
			3 * time.Minute},
		{"ended unseen", []*podproof.Pod{running(), running(), podEnded()}, true, podproof.Never, 2 * time.Minute},
		{"started again unseen", []*podproof.Pod{running(), running(), restarted()}, true, 2 * time.Minute,
			2 * time.Minute},
	} {
		t.Run(c.about, func(t *testing.T) {
			var known *podproof.Pod
			for i, p := range c.seen {
				now := time.Duration(i+1) * time.Minute
				confirmed := now
				if c.lost && i == len(c.seen)-1 {
					confirmed -= time.Minute
				}
				known = podproof.Observe(known, *p, confirmed, now)
			}
			got := known.Containers[0]
			if got.NewSince != c.isNew || got.EndedSince != c.sinceEnds {
				t.Errorf("new since %v and ended since %v, want %v and %v", got.NewSince, got.EndedSince, c.isNew,
					c.sinceEnds)
			}
		})
	}
}

func TestPatienceWithATerminatingPodStartsOnce(t *testing.T) {
	told := running()
	told.Deleting = 0
	known := podproof.Observe(nil, *running(), time.Minute, time.Minute)
	for _, now := range []time.Duration{2 * time.Minute, 3 * time.Minute} {
		again := *told
		if known = podproof.Observe(known, again, now, now); known.Deleting != 2*time.Minute {
			t.Errorf("at %v: told to end since %v", now, known.Deleting)
		}
	}
	gone := podproof.MarkGone(known, 4*time.Minute, true)
	if gone.Gone != 4*time.Minute || !gone.GoneUnseen || known.Gone != podproof.Never {
		t.Errorf("%+v", gone)
	}
}
