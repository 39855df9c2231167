package robustness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

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
