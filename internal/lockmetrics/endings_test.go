package lockmetrics_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockmetrics"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func ending(ended string) *metadata.Ending {
	return &metadata.Ending{Cause: ended, EndedAt: metadata.Time{Time: now}}
}

func TestHoldsAreMeasuredByHowTheyEnded(t *testing.T) {
	w := newWorld()
	c := lockmetrics.New(w.config())
	fromTheFuture := lock("future", time.Hour)
	fromTheFuture.LockedAt = now.Add(time.Hour)
	fromTheFuture.Seen.First = w.mono - 30*time.Second
	c.Ended(fromTheFuture, nil)
	c.Ended(lock("an hour", time.Hour), nil)
	c.Ended(lock("stale", -time.Hour), ending(metadata.EndingAutoUnlocked))
	asked := lock("asked to finish", time.Hour)
	asked.FinishRequest = &metadata.FinishRequest{By: "ann", Reason: "deploy"}
	c.Ended(asked, nil)
	c.Ended(lock("dead", time.Hour), ending(metadata.EndingAbandoned))
	got := map[string]string{}
	for _, m := range gather(t, c)["unlocker_hold_seconds"].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = fmt.Sprint(m.GetHistogram().GetSampleCount(), " ",
			m.GetHistogram().GetSampleSum())
	}
	want := map[string]string{"released": "2 3630", "yielded": "1 3600", "auto-unlocked": "1 3600",
		"force-unlocked": "0 0", "abandoned": "1 3600"}
	if !maps.Equal(got, want) {
		t.Errorf("counts and sums are %v, want %v", got, want)
	}
}
