package etcdtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestClusterSurvivesTheDeathOfItsLeader(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	put(t, m.Client(t), "a", "1")
	old := m.Leader(t)
	m.Kill(old)
	if now := m.Leader(t); now == old {
		t.Errorf("member %d leads after it was killed", now)
	}
	m.Restart(old)
	m.WaitReady(t)
	if got := get(t, m.ClientOf(t, old), "a"); got != "1" {
		t.Errorf("a = %q on the restarted member, want 1", got)
	}
}

func TestPausedMemberIsSilentUntilResumed(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 1)
	c := m.Client(t)
	put(t, c, "a", "1")
	m.Pause(0)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "a"); err == nil {
		t.Error("a paused member answered")
	}
	m.Resume(0)
	get(t, c, "a")
}
