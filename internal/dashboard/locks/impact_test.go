package locks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// subject is a lock that a person might hear of. Times are distances from now.
type subject struct {
	name          string
	alert, unlock time.Duration
	broken        bool          // its alert cannot be read
	dead          time.Duration // how long a witness has known that its holder ended; 0: it lives
	waits         []time.Duration
	looked        bool // somebody looks at it
}

// TestWorstIsOfTheFirstClassThatIsNotEmpty takes the worst lock away until there is none. Each row is what a person
// should hear of before all rows that follow it.
func TestWorstIsOfTheFirstClassThatIsNotEmpty(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	wait := func(d ...time.Duration) []time.Duration { return d }
	reports := staleness.DefaultPolicy()
	unlocks := reports
	unlocks.UnlockAbandoned = true
	expired := []subject{
		{name: "overdue, one waits", alert: -2 * h, unlock: -h, waits: wait(m)},
		{name: "overdue for longest", alert: -2 * h, unlock: -h},
		{name: "overdue", alert: -h, unlock: -41 * s},
	}
	living := []subject{
		{name: "late, two have lost five minutes", alert: -m, unlock: h, waits: wait(m, 4*m)},
		{name: "late, one has lost four", alert: -m, unlock: h, waits: wait(4 * m)},
		{name: "late for longest", alert: -h, unlock: h},
		{name: "late", alert: -m, unlock: h},
		{name: "late, many wait, somebody looks", alert: -h, unlock: h, waits: wait(h, h, h), looked: true},
		{name: "malformed, one waits", broken: true, unlock: h, waits: wait(m)},
		{name: "malformed", broken: true, unlock: h},
		{name: "warned, one waits", alert: m, unlock: m, waits: wait(s)},
		{name: "warned first", alert: 10 * s, unlock: 10 * s},
		{name: "warned", alert: m, unlock: m},
	}
	peace := []subject{
		{name: "sound, one has waited for an hour", alert: h, unlock: h, waits: wait(h)},
		{name: "sound, many wait", alert: h, unlock: h, waits: wait(m, m, m, 59*m, 59*m, 59*m)},
	}
	leaving := []subject{
		{name: "expired just now, two wait", alert: -h, unlock: -s, waits: wait(m, m)},
		{name: "expired just now", alert: -h, unlock: -39 * s},
	}
	for what, c := range map[string]struct {
		policy staleness.Policy
		want   []subject
	}{
		"the dead are only reported": {reports, slices.Concat(expired, []subject{
			{name: "dead, one waits", alert: h, unlock: h, dead: h, waits: wait(m)},
			{name: "dead", alert: h, unlock: h, dead: m},
		}, living, leaving, peace)},
		"the dead are unlocked": {unlocks, slices.Concat(expired, []subject{
			{name: "dead since long", alert: h, unlock: h, dead: 16 * s},
		}, living, leaving, []subject{
			{name: "dead just now", alert: h, unlock: h, dead: s},
		}, peace)},
	} {
		for rest := c.want; len(rest) > 0; rest = rest[1:] {
			worst := snapshotOf(rest, c.policy).Worst()
			if worst == nil || worst.Lock != rest[0].name {
				t.Fatalf("%s: the worst is %+v, want %q", what, worst, rest[0].name)
			}
		}
		calm := subject{name: "sound, nobody waits", alert: h, unlock: h}
		if worst := snapshotOf([]subject{calm}, c.policy).Worst(); worst != nil {
			t.Errorf("%s: there is a worst although nothing is wrong and nobody waits: %+v", what, worst)
		}
	}
}

// TestALockBecomesOverdueByTimeAlone: the snapshot says when it must be made anew.
func TestALockBecomesOverdueByTimeAlone(t *testing.T) {
	late := snapshotOf([]subject{{name: "a", alert: -time.Hour, unlock: -30 * time.Second}}, staleness.DefaultPolicy())
	if want := noon.Add(10 * time.Second); !late.Next.Equal(want) || late.Worst().Class() != locks.Leaving {
		t.Errorf("the class %d changes at %v, want %v", late.Worst().Class(), late.Next, want)
	}
}

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func snapshotOf(subjects []subject, p staleness.Policy) *locks.Snapshot {
	const mono = 10 * time.Hour
	source := locks.Source{Policy: func() staleness.Policy { return p }, Locks: func() (all []*metadata.Record) {
		for _, s := range subjects {
			all = append(all, s.record(mono))
		}
		slices.SortFunc(all, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
		return all
	}, Queues: func() map[string][]metadata.Waiter {
		queues := map[string][]metadata.Waiter{}
		for _, s := range subjects {
			for i, waited := range s.waits {
				w := metadata.Waiter{Lock: s.name, ID: fmt.Sprint(i)}
				w.Since = metadata.Time{Time: noon.Add(-waited)}
				queues[s.name] = append(queues[s.name], w)
			}
		}
		return queues
	}}
	return locks.NewSnapshots(source).Current(noon, staleness.Moment{Wall: noon, Mono: mono})
}

func (s subject) record(mono time.Duration) *metadata.Record {
	at := func(d time.Duration) string { return metadata.FormatTime(noon.Add(d)) }
	fields := []metadata.Field{{Name: "uuid", Value: "00000000-0000-4000-8000-000000000001"},
		{Name: "locked_at", Value: at(-3 * time.Hour)}, {Name: "alert_at", Value: at(s.alert)},
		{Name: "auto_unlock_at", Value: at(s.unlock)}}
	if s.broken {
		fields[2].Value = "soon"
	}
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = 7, 7
	}
	document := metadata.Decode(s.name, fields)
	r := &document.Record
	r.Seen = metadata.Seen{First: mono, Changed: mono}
	if s.dead > 0 {
		r.Heed(&metadata.Statement{Lock: s.name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseContainerEnded,
			EndedAt: metadata.Time{Time: noon.Add(-s.dead)}, Revision: 8, Seen: mono - s.dead}, nil)
	}
	if s.looked {
		r.Acknowledged = &metadata.Acknowledgement{By: "ann", Until: metadata.Time{Time: noon.Add(time.Hour)}}
	}
	return r
}
