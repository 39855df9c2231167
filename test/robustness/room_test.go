package robustness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// TestRoomIsMade fills half of etcd, has room made, and wants it back at every member: one that keeps what was deleted
// takes writes again, too, and raises the alarm anew when it has grown a little. All that was written before the
// deletion is recorded here, which is when a compaction is easily one revision short of it.
func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	s := emptyStage(t, 3)
	ctx := t.Context()
	megabyte := strings.Repeat("x", 1<<20)
	for i := range quota >> 21 {
		if _, err := s.direct.Put(ctx, fmt.Sprint(fillPrefix, i), megabyte); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.direct.Put(ctx, prefix+"last", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.recorder.catchUp(ctx); err != nil {
		t.Fatal(err)
	}
	s.makeRoom()
	for _, e := range s.members.Endpoints() {
		status, err := s.direct.Status(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		if status.DbSize > 1<<20 {
			t.Errorf("%s still has %d MiB after room was made", e, status.DbSize>>20)
		}
	}
}

// TestARunThatEndsWithAnAlarmSaysSo fills etcd and has nobody make room: the end of the run names the alarm, and makes
// room, so that the other checks say something.
func TestARunThatEndsWithAnAlarmSaysSo(t *testing.T) {
	t.Parallel()
	s := emptyStage(t, 1)
	if _, done := s.fill(); !done {
		t.Fatal("etcd was not filled")
	}
	if alarms := s.alarmed(); !strings.Contains(alarms, "NOSPACE at member") {
		t.Fatalf("a full etcd raises no alarm: %q", alarms)
	}
	var violations []string
	s.clearAlarms(func(rule, format string, args ...any) {
		violations = append(violations, violation{rule, fmt.Sprintf(format, args...)}.String())
	})
	if !slices.ContainsFunc(violations, func(v string) bool { return strings.Contains(v, "NOSPACE at member") }) {
		t.Errorf("the run says nothing of the alarm: %v", violations)
	}
	if alarms := s.alarmed(); alarms != "" {
		t.Errorf("no room was made: %s", alarms)
	}
}

// emptyStage has an etcd of this many members, and nobody who uses it but the recorder.
func emptyStage(t *testing.T, nodes int) *stage {
	t.Helper()
	s := newStage(t, config{Seed: 1, Nodes: nodes, World: plainWorld}, t.TempDir())
	s.members = etcdtest.Cluster(t, nodes, s.options()...)
	s.direct = s.client(s.members.Endpoints())
	s.recorder = newRecorder(s.client(s.members.Endpoints()))
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); s.wg.Wait() })
	s.wg.Go(func() { s.recorder.run(ctx) })
	return s
}
