package sweeper_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

func excluding(globs ...string) func(*node, *sweeper.Config) {
	return func(_ *node, c *sweeper.Config) { c.Exclude = globs }
}

func TestAuditLineHasTheWholeRecord(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take("billing/invoice/42", time.Minute, 2*time.Minute, func(r *metadata.Record) {
			r.Alive = &metadata.Alive{At: r.LockedAt.Add(time.Second), Progress: "3 of 4"}
			r.Attributes = map[string]any{"queue": "night", "shard": json.Number("7"), "retry": true}
			r.Problems = []metadata.Problem{{Field: "pid", Kind: metadata.ProblemBadValue, Text: "no number"}}
			r.Suspicion = &metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: "lost",
				Reason: "it is away", Witness: "kubernetes", By: "w-1", ExitCode: new(int), Signal: "KILL",
				Detail: "OOMKilled"}
		})
		r := s.locks["billing/invoice/42"]
		s.wait(time.Hour)
		lines := n.log("lock removed")
		if len(lines) != 1 {
			t.Fatalf("%d lines", len(lines))
		}
		want := map[string]any{
			"level": "warn", "message": "lock removed", "result": "success", "lock": r.Name, "owner": "billing",
			"hostname": "pod-1", "pid": 42.,
			"uuid": r.UUID, "token": float64(r.Token), "revision": float64(r.Revision), "purpose": "test",
			"locked_at": "2000-01-01T00:00:00Z", "alert_at": "2000-01-01T00:01:00Z",
			"auto_unlock_at": "2000-01-01T00:02:00Z",
			"alive":          "2000-01-01T00:00:01Z", "progress": "3 of 4",
			"attributes": map[string]any{"queue": "night", "shard": 7., "retry": true},
			"problems":   []any{r.Problems[0].String()},
			"suspicion": map[string]any{"cause": "lost", "how": "it is away", "witness": "kubernetes", "by": "w-1",
				"exit_code": 0., "signal": "KILL", "detail": "OOMKilled"},
			"reason": "its auto_unlock_at 2000-01-01T00:02:00Z passed and its holder did not extend it; " +
				"the lock alerted for at least 30s",
		}
		if got, want := fmt.Sprint(lines[0]), fmt.Sprint(want); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		if why := s.endings[r.Name].Reason; why != want["reason"] {
			t.Errorf("the history says %q, the log %q", why, want["reason"])
		}
	})
}

func TestHostileRecordsCannotForgeTheLog(t *testing.T) {
	hostile := "x\n{\"level\":\"info\"}\x1b[31m\u202egnp.exe\xff\u009b\u2028\x00"
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take(hostile, time.Second, 2*time.Minute, func(r *metadata.Record) {
			r.UUID = hostile
			r.Owner = hostile
			r.Hostname = hostile
			r.Purpose = hostile
			r.Alive = &metadata.Alive{Progress: hostile}
			r.Attributes = map[string]any{hostile: hostile}
			r.Problems = []metadata.Problem{{Field: hostile, Kind: metadata.ProblemBadValue, Text: hostile}}
		})
		s.broken[hostile] = fmt.Errorf("etcd says: %s", hostile)
		s.wait(3 * time.Minute)
		delete(s.broken, hostile)
		s.wait(6 * time.Minute)
		n.mustLog(t, 1, "the lock is alerting")
		n.mustLog(t, 6, "lock not removed")
		n.mustLog(t, 1, "lock removed")
		for line := range strings.Lines(n.logged.String()) {
			if !json.Valid([]byte(line)) || !utf8.ValidString(line) {
				t.Errorf("not a JSON line: %q", line)
			}
			if strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\u202e\u009b\u2028\x00\n") {
				t.Errorf("control characters: %q", line)
			}
		}
	})
}

func TestAlertStartIsLoggedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t)
		s.take("a", time.Minute, time.Hour)
		s.wait(59 * time.Second)
		n.mustLog(t, 0, "the lock is alerting")
		s.wait(6 * time.Second)
		n.mustLog(t, 1, "the lock is alerting", "state", "alerting", "lock", "a")
		s.wait(10 * time.Minute)
		n.mustLog(t, 1, "the lock is alerting")
		s.set(func() { // as a client that chooses its alert
			s.revision++
			r := s.locks["a"]
			r.AlertAt = time.Now().Round(0).Add(10 * time.Minute)
			r.Revision = s.revision
			r.DeadlineRevision = s.revision
			s.locks["a"] = r
		})
		s.wait(11 * time.Minute)
		n.mustLog(t, 2, "the lock is alerting")
		s.take("a", 0, time.Hour)
		s.wait(10 * time.Second)
		n.mustLog(t, 3, "the lock is alerting")
		s.take("b", time.Minute, time.Minute) // it never only alerts
		s.wait(65 * time.Second)
		n.mustLog(t, 4, "the lock is alerting", "state", "expired")
	})
}

func TestAlertsAreLoggedOnceTheViewIsComplete(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		n := s.join(t, func(n *node, _ *sweeper.Config) { n.stale = &protocol.Freshness{} })
		s.wait(2 * time.Second)
		s.take("a", 0, time.Hour)
		s.set(func() { n.stale = nil })
		s.wait(time.Second) // and the next scan is later
		n.mustLog(t, 1, "the lock is alerting")
	})
}

func TestAlertFloodIsCountedNotLogged(t *testing.T) {
	simulate(t, func(t *testing.T, s *store) {
		s.takeMany(1000, 2000)
		s.wait(10 * time.Second)
		n := s.join(t)
		s.wait(10 * time.Second)
		n.mustLog(t, 100, "the lock is alerting")
		if got := sample(t, n, "unlocker_alerting_locks_total"); got != 1000 {
			t.Errorf("counted %v", got)
		}
	})
}
