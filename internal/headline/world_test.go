package headline_test

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const s, m, h = time.Second, time.Minute, time.Hour

// mono is now on the monotonic clock of the view.
const mono = 10 * h

func now() time.Time { return time.Date(2026, 11, 26, 7, 48, 42, 0, time.UTC) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// subject is a lock in a test. Times are distances from now; 0 leaves one out.
type subject struct {
	name                  string
	alert, unlock         time.Duration
	reported              time.Duration // ago
	every                 time.Duration // before that
	progress              string
	dead, suspected       time.Duration // ago; a witness has said so since 5 s later
	disputes              bool          // the holder reported after its death was stated
	waits                 []time.Duration
	looked                bool
	shares                int
	host                  string // in a namespace: of a pod; detached: of work that outlives its process
	pid                   int64
	misplaced, unreadable bool
}

func (x subject) record() *metadata.Record {
	at := func(d time.Duration) string { return metadata.FormatTime(now().Add(d)) }
	fields := []metadata.Field{{Name: "uuid", Value: "00000000-0000-4000-8000-000000000001"},
		{Name: "owner", Value: "billing"}, {Name: "hostname", Value: "w9"}, {Name: "locked_at", Value: at(-2 * h)},
		{Name: "alert_at", Value: at(x.alert)}, {Name: "auto_unlock_at", Value: at(x.unlock)}}
	if x.unreadable {
		fields[5].Value = "soon"
	}
	untimed := x.unreadable && x.alert == 0
	if untimed {
		fields[4].Value = "monday"
	}
	if x.reported > 0 {
		fields = append(fields, metadata.Field{Name: "alive",
			Value: lockrecord.FormatAlive(ago(x.reported), x.progress)})
	}
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = 7, 7
	}
	if x.every > 0 {
		fields[5].Version = 1 + int64((2*h-x.reported)/x.every)
	}
	r := lockrecord.DecodeRecord(x.name, fields)
	r.Seen = metadata.Seen{First: mono - 2*h, Changed: mono - 2*h}
	if x.reported > 0 {
		r.Seen.Changed = mono - x.reported
	}
	if untimed {
		r.Seen.First = mono - m // the default alert is yet to come
	}
	r.Misplaced = x.misplaced
	if r.PID = x.pid; r.PID != 0 {
		r.Hostname = x.host
	}
	switch x.host {
	case "in a namespace":
		r.Process = &metadata.Process{PodNamespace: "shop", PodName: "web"}
	case "detached":
		r.Process = &metadata.Process{Detached: true}
	}
	stated := func(after time.Duration, cause string) *metadata.Statement {
		if after == 0 {
			return nil
		}
		return &metadata.Statement{Name: x.name, UUID: r.UUID, Token: r.Token, Cause: cause,
			EndedAt: metadata.Time{Time: ago(after)}, Revision: 9, Seen: mono - after + min(after, 5*s)}
	}
	death := stated(x.dead, metadata.CauseProcessEnded)
	if death != nil {
		death.Signal = "SIGKILL"
	}
	lockrecord.AttachStatements(&r, death, stated(x.suspected, metadata.CausePodDeleted))
	if x.disputes {
		r.Alive.Revision = 10
	}
	if x.looked {
		r.Acknowledgement = &metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: "ann",
			Until: metadata.Time{Time: ago(-h)}}
	}
	return &r
}

func (x subject) lock(f *diagnosis.CombinedPolicy) locks.HeldLock {
	at := staleness.Moment{Wall: now(), Mono: mono}
	row := locks.NewRow(x.record(), f, at, new(locks.SummarizeWaiters(x.queue(), now())), "")
	return locks.NewHeldLock(x.name, slices.Repeat([]*locks.Row{row}, max(1, x.shares)))
}

func (x subject) queue() []metadata.Waiter {
	queue := make([]metadata.Waiter, len(x.waits))
	for i, waited := range x.waits {
		queue[i].Since = metadata.Time{Time: ago(waited)}
	}
	return queue
}

// runs is how unlockers run in a test.
type runs struct {
	name     string
	mode     string // empty: none runs
	abandons bool   // the locks of the dead are unlocked
	exclude  []string
	heldBack []string
}

func policies() []runs {
	return []runs{
		{name: "report", mode: diagnosis.ModeAutoUnlock},
		{name: "unlock", mode: diagnosis.ModeAutoUnlock, abandons: true},
		{name: "watch", mode: "alert-only"},
		{name: "exclude", mode: diagnosis.ModeAutoUnlock, abandons: true, exclude: []string{"*"}},
		{name: "gap", mode: diagnosis.ModeAutoUnlock, abandons: true, heldBack: []string{string(staleness.RuleGap)}},
	}
}

func (u runs) cluster(subjects ...subject) headline.Input {
	c := headline.Input{Now: now()}
	if u.mode != "" {
		p := staleness.DefaultPolicy()
		p.UnlockAbandoned = u.abandons
		c.Running = []metadata.Presence{{ID: "eu-1", Mode: u.mode, HeldBack: u.heldBack,
			RemovalPolicy: p.ToPresence(u.exclude)}}
	}
	c.Combined = diagnosis.CombinePolicies(c.Running)
	c.Ranking = &locks.Ranking{}
	for _, x := range subjects {
		c.Held++
		c.Waiting += len(x.waits)
		c.Ranking.Add(x.lock(&c.Combined))
	}
	return c
}

func cycle() deadlock.Cycle {
	a, b := deadlock.Process{Owner: "a", Host: "h", PID: 1}, deadlock.Process{Owner: "b", Host: "h", PID: 2}
	return deadlock.Cycle{Since: ago(4 * m), Waits: []deadlock.Wait{
		{Who: a, Lock: "shop/b", Held: []deadlock.Process{b}}, {Who: b, Lock: "shop/a", Held: []deadlock.Process{a}}}}
}

func free(waiters int) diagnosis.Unclaimed {
	first := metadata.Waiter{}
	first.Owner, first.Hostname = "sleepy", "w9"
	return diagnosis.Unclaimed{Name: "free/lock", Since: ago(2 * m), Waiters: waiters, First: first}
}
