package diagnosis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// at is what an observer sees at a moment of its clock, whose hour 1 is noon. free has since when which locks are free.
func at(now time.Duration, free map[string]time.Duration) diagnosis.FreeLocks {
	v := diagnosis.FreeLocks{Free: free, Queues: map[string][]metadata.Waiter{}, Synced: true, Now: now,
		Wall: noon.Add(now - time.Hour)}
	for lock := range free {
		v.Queues[lock] = []metadata.Waiter{{ID: "first of " + lock}, {ID: "second"}}
	}
	return v
}

func said(found []diagnosis.Unclaimed) string {
	var all []string
	for _, l := range found {
		all = append(all, fmt.Sprintf("%s since %s: %s, %d", l.Name, l.Since.Format("15:04:05"), l.First.ID, l.Waiters))
	}
	return strings.Join(all, "; ")
}

func TestFind(t *testing.T) {
	free := func(name string, since time.Duration) map[string]time.Duration {
		return map[string]time.Duration{name: since}
	}
	a := free("a", time.Hour)
	const found = "a since 12:00:00: first of a, 2"
	for _, c := range []struct {
		what string
		view func(*diagnosis.FreeLocks)
		at   time.Duration // after noon
		want string
	}{
		{"just released", nil, 0, ""},
		{"handed over slowly", nil, 29 * time.Second, ""},
		{"half a minute", nil, 30 * time.Second, found},
		{"46 minutes", nil, 46 * time.Minute, found},
		{"not followed", func(v *diagnosis.FreeLocks) { v.Synced = false }, 46 * time.Minute, ""},
		{"followed again, for too short a time",
			func(v *diagnosis.FreeLocks) { v.Followed = v.Now - 10*time.Second }, 46 * time.Minute, ""},
		{"followed again, for long enough",
			func(v *diagnosis.FreeLocks) { v.Followed = v.Now - 30*time.Second }, 46 * time.Minute, found},
		{"nobody waits any more", func(v *diagnosis.FreeLocks) { v.Queues = nil }, 46 * time.Minute, ""},
		{"held", func(v *diagnosis.FreeLocks) { v.Free = nil }, 46 * time.Minute, ""},
		{"two, the longest first", func(v *diagnosis.FreeLocks) {
			*v = at(v.Now, map[string]time.Duration{"a": time.Hour, "b": time.Hour - time.Second, "c": v.Now})
		}, time.Minute, "b since 11:59:59: first of b, 2; " + found},
	} {
		v := at(time.Hour+c.at, a)
		if c.view != nil {
			c.view(&v)
		}
		if got := said(diagnosis.FindUnclaimed(nil, v)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestUnclaimedLockStaysReportedUntilTaken(t *testing.T) {
	free := map[string]time.Duration{"a": time.Hour}
	found := diagnosis.FindUnclaimed(nil, at(time.Hour+time.Minute, free))
	later := at(time.Hour+2*time.Minute, free)
	later.Wall = later.Wall.Add(7 * time.Second) // the wall clock was set
	later.Followed = later.Now                   // and the watch was interrupted
	later.Synced = false
	found = diagnosis.FindUnclaimed(found, later)
	if got := said(found); got != "a since 12:00:00: first of a, 2" {
		t.Errorf("while the observer is interrupted: %q", got)
	}
	again := at(time.Hour+3*time.Minute, map[string]time.Duration{"a": time.Hour + 3*time.Minute})
	if found := diagnosis.FindUnclaimed(found, again); len(found) != 0 {
		t.Errorf("taken and released anew: %q", said(found))
	}
}
