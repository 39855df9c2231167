package locks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// held is a lock that alerts some time after noon.
func held(name string, alert time.Duration) *metadata.Record {
	return &metadata.Record{Name: name, UUID: "u", Token: 7, LockedAt: noon.Add(-time.Minute),
		AlertAt: noon.Add(alert), AutoUnlockAt: noon.Add(5 * time.Hour),
		Seen: metadata.Seen{First: time.Hour, Changed: time.Hour}}
}

// source is locks that change between two snapshots.
type source struct {
	held     []*metadata.Record
	queues   map[string][]metadata.Waiter
	policy   staleness.Policy
	mono     time.Duration
	snapshot *locks.Snapshots
}

func newSource(held ...*metadata.Record) *source {
	s := &source{held: held, policy: staleness.DefaultPolicy()}
	s.snapshot = locks.NewSnapshots(locks.Source{
		Locks:    func() []*metadata.Record { return s.held },
		Queues:   func() map[string][]metadata.Waiter { return s.queues },
		Combined: func() diagnosis.CombinedPolicy { return diagnosis.CombinedPolicy{Policy: s.policy} },
		Clock:    func() time.Duration { return s.mono },
	})
	return s
}

// at returns the snapshot some time after noon, when etcd has been silent for a while.
func (s *source) at(after, silent time.Duration) *locks.Snapshot {
	s.mono = time.Hour + after
	return s.snapshot.Current(noon.Add(after), locks.Freshness{Freshness: protocol.Freshness{
		HeardAt: noon.Add(after - silent), ProgressInterval: time.Second}})
}

func TestRowsOfUnchangedLocksAreReused(t *testing.T) {
	s := newSource(held("changed", time.Hour), held("gone", time.Hour), held("late", 30*time.Second),
		held("same", time.Hour), held("waited", time.Hour))
	before := s.at(0, 0)
	s.held = []*metadata.Record{held("changed", 2*time.Hour), s.held[2], held("new", time.Hour), s.held[3], s.held[4]}
	s.queues = map[string][]metadata.Waiter{"waited": {{Revision: 9}}}
	now := s.at(time.Minute, 0)
	if before.Find("same") != now.Find("same") {
		t.Error("a lock that did not change was judged again")
	}
	if before.Find("gone") == nil || now.Find("gone") != nil || now.Find("new") == nil || len(now.Rows) != 5 {
		t.Errorf("%d locks, want those that are held now", len(now.Rows))
	}
	if at := now.Find("changed").AlertAt; !at.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("a lock that was extended alerts at %v", at)
	}
	if got := now.Find("late").Display; got != metadata.StateAlerting {
		t.Errorf("a lock whose alert has passed is %s", got)
	}
	if got := now.Find("waited").Waiters; got != 1 {
		t.Errorf("a lock with a new waiter has %d", got)
	}
	s.policy.ClockSkew = time.Hour
	if now.Find("same") == s.at(2*time.Minute, 0).Find("same") {
		t.Error("a lock was not judged again by the new policy")
	}
}

// Five short waits cost less than a long one at first. Nothing else happens when they overtake it.
func TestOrderFollowsTheTimeLost(t *testing.T) {
	s := newSource(held("five", -time.Hour), held("one", -time.Hour))
	since := func(d time.Duration) metadata.Waiter {
		return metadata.Waiter{Ticket: metadata.Ticket{Since: metadata.Time{Time: noon.Add(-d)}}}
	}
	s.queues = map[string][]metadata.Waiter{"one": {since(20 * time.Minute)},
		"five": slices.Repeat([]metadata.Waiter{since(time.Minute)}, 5)}
	before := s.at(0, 0)
	for i, first := range []string{"one", "five"} {
		after := time.Duration(i) * 4 * time.Minute
		now := s.at(after, 0)
		if got := now.InOrder(locks.Order{By: locks.MostUrgent})[0].Name; got != first {
			t.Errorf("after %v, %s is first, want %s", after, got, first)
		}
		if changed := now.Totals.Version != before.Totals.Version; changed != (first == "five") {
			t.Errorf("after %v, the version is another one: %v", after, changed)
		}
		if first == "five" && now.Ranking().First.Name != first {
			t.Errorf("after %v, the headline is about %s", after, now.Ranking().First.Name)
		}
	}
}

// Foreign keys in the range of a record, and keys that are deleted from it, do not change its revision, but lists show
// that.
func TestVersionFollowsWhatIsShown(t *testing.T) {
	s := newSource(held("a", time.Hour))
	known := map[uint64]int{s.at(0, 0).Totals.Version: -1}
	for i, change := range []func(*metadata.Record){
		func(r *metadata.Record) { r.Problems = []metadata.Problem{{Text: "1 foreign key"}} },
		func(r *metadata.Record) { r.Problems = []metadata.Problem{{Text: "2 foreign keys"}} },
		func(r *metadata.Record) { r.Owner = "another" },
		func(r *metadata.Record) { r.Hostname = "another" },
		func(r *metadata.Record) { r.PID++ },
		func(r *metadata.Record) { r.Purpose = "another" },
		func(r *metadata.Record) { r.LockedAt = r.LockedAt.Add(-time.Second) },
		func(r *metadata.Record) { r.Attributes = map[string]any{"team": "blue"} },
		func(r *metadata.Record) { r.Alive = &metadata.Alive{Revision: 1} },
		func(r *metadata.Record) { r.FinishRequest = &metadata.FinishRequest{Revision: 3} },
		func(r *metadata.Record) { r.MoreTime, r.Alive = &metadata.MoreTime{}, &metadata.Alive{Revision: 1} },
	} {
		changed := held("a", time.Hour)
		change(changed)
		s.held = []*metadata.Record{changed}
		version := s.at(time.Duration(i+1)*time.Second, 0).Totals.Version
		if same, ok := known[version]; ok {
			t.Errorf("the version after change %d is that after %d", i, same)
		}
		known[version] = i
	}
}

// While etcd is silent, locks are judged at its last sign of life, which may be before they were judged last.
func TestSilenceOfEtcdIsJudgedAtItsLastSignOfLife(t *testing.T) {
	s := newSource(held("a", 10*time.Second))
	for _, c := range []struct {
		after, silent time.Duration
		want          metadata.State
	}{
		{11 * time.Second, 0, metadata.StateAlerting},
		{14 * time.Second, 5 * time.Second, metadata.StateHeld},
		{16 * time.Second, 7 * time.Second, metadata.StateHeld},
		{20 * time.Second, 0, metadata.StateAlerting},
	} {
		if got := s.at(c.after, c.silent).Find("a").Display; got != c.want {
			t.Errorf("after %v, %v of them silent: %s, want %s", c.after, c.silent, got, c.want)
		}
	}
}

// The default policy's deadlines run on the monotonic clock.
func TestClockThatWasSetIsJudgedAnew(t *testing.T) {
	malformed := &metadata.Record{Name: "a", UUID: "u", Token: 7, Seen: metadata.Seen{First: 50 * time.Minute}}
	s := newSource(malformed, held("b", 9*time.Hour))
	s.policy.DefaultAlertAfter = time.Hour
	if at := s.at(0, 0).Find("a").DueAlert; !at.Equal(noon.Add(50 * time.Minute)) {
		t.Fatalf("it alerts at %v", at)
	}
	s.held = []*metadata.Record{malformed, held("b", 10*time.Hour)}
	set := noon.Add(30 * time.Minute)
	s.mono = time.Hour + time.Second
	now := s.snapshot.Current(set, locks.Freshness{})
	if at := now.Find("a").DueAlert; !at.Equal(set.Add(50*time.Minute - time.Second)) {
		t.Errorf("after the clock was set, it alerts at %v", at)
	}
}

// A semaphore with too many permits out once looked calm. The records of its holders alone say nothing.
func TestHoldersOfTooManyPermitsNeedAPerson(t *testing.T) {
	share := func(name string) *metadata.Record {
		r := held(name, time.Hour)
		r.Attributes = map[string]any{"kind": "semaphore", "permits": 1., "limit": 1.}
		return r
	}
	first, second := share("pool#1"), share("pool#2")
	s := newSource(first, second)
	for after, want := range []locks.Class{locks.ClassMalformed, locks.ClassOnTime, locks.ClassMalformed} {
		s.held = [][]*metadata.Record{{first, second}, {first}, {first, second}}[after]
		now := s.at(time.Duration(after)*time.Minute, 0)
		if row := now.Find("pool#1"); row.Class != want || (row.Inconsistent == "") != (want == locks.ClassOnTime) {
			t.Errorf("%d: the holder is %v, %q", after, row.Class, row.Inconsistent)
		}
		if want == locks.ClassMalformed && now.Ranking().First.Lock != "pool" {
			t.Errorf("the headline is about %+v", now.Ranking().First)
		}
		finds := now.Finds(locks.ParseQuery("state:malformed", locks.AboutLocks), "pool", noon)
		if finds != (want == locks.ClassMalformed) {
			t.Errorf("%d: state:malformed finds the holder: %t", after, finds)
		}
	}
}
