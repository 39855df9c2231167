package dashboard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// job is a process that holds a lock, with the facts that the table needs.
type job struct {
	lock          string
	taken         time.Time
	alert, unlock time.Time
	reports       []time.Time
	promise       time.Duration // each report moves the deadlines so far ahead; 0: it reports without moving them
	beats         time.Duration // how often it reports; 0: never again
	unreadable    bool          // its auto_unlock_at
	died, doubted time.Time     // when a witness said so, or that it suspects so
	denied        bool          // it reported since
	waiters       int
	looked        time.Time // until when somebody looks
}

// plan is a simulated world: its events, and the truth about it.
type plan struct {
	*scene
	chance  *rand.Rand
	began   time.Time
	jobs    []*job
	regime  regime
	silent  bool // etcd
	blocked bool // the holders of pair/a and pair/b wait for each other
	free    bool // somebody waits for free/lock, and does not take it
}

// regime is how unlockers run.
type regime struct {
	none, watches, buriesDead, disagree bool
	heldBack                            string
	exclude                             []string
}

func regimes() []regime {
	return []regime{{}, {}, {buriesDead: true}, {buriesDead: true}, {watches: true}, {none: true}, {disagree: true},
		{buriesDead: true, exclude: []string{"job/*"}}, {heldBack: "clock"}, {heldBack: "gap"}}
}

func newPlan(seed uint64) *plan {
	s := newScene()
	return &plan{scene: s, chance: rand.New(rand.NewPCG(seed, 29)), began: s.now}
}

func (p *plan) now() time.Time { return p.scene.now }

// mono is a moment on the clock of the view, which was started an hour before the world.
func (p *plan) mono(at time.Time) time.Duration { return time.Hour + at.Sub(p.began) }

// shown lets a dashboard show the world.
func (p *plan) shown(c *app.Config) {
	of(c).clock = func() time.Duration { return p.mono(p.now()) }
	of(c).shown = func() []*metadata.Record { return p.locks }
	c.Unclaimed = func() []diagnosis.Unclaimed {
		if !p.free {
			return nil
		}
		first := metadata.Waiter{}
		first.Owner = "sleepy"
		return []diagnosis.Unclaimed{{Name: "free/lock", Since: p.began, Waiters: 1, First: first}}
	}
}

func (p *plan) one(in int) bool { return p.chance.IntN(in) == 0 }

// upTo returns a random duration of whole seconds.
func (p *plan) upTo(d time.Duration) time.Duration {
	return time.Duration(1+p.chance.Int64N(int64(d/time.Second))) * time.Second
}

// happens lets time pass and usually an event happen. Without an event, nothing is written.
func (p *plan) happens() {
	p.scene.now = p.next()
	written := len(p.locks) == 0
	for _, j := range p.jobs {
		written = j.works(p.now()) || written
	}
	if p.one(10) {
		p.regime = regimes()[p.chance.IntN(len(regimes()))]
	}
	p.silent = p.one(25)
	p.free = p.one(25)
	if written || p.one(2) {
		p.changes()
		p.publish()
	}
	p.fresh.HeardAt = p.now()
	if p.silent {
		p.fresh.HeardAt = p.now().Add(-10 * p.fresh.ProgressInterval)
	}
	p.unlockers = p.regime.unlockers(p.now())
}

// changes takes or releases a lock, and makes something happen to a process.
func (p *plan) changes() {
	p.blocked = p.one(25)
	switch {
	case len(p.jobs) > 0 && (len(p.jobs) > 5 || p.one(4)):
		i := p.chance.IntN(len(p.jobs))
		p.jobs = slices.Delete(p.jobs, i, i+1)
	case p.one(2):
		p.jobs = append(p.jobs, p.takes())
	}
	if len(p.jobs) > 0 && p.one(2) {
		p.befalls(p.jobs[p.chance.IntN(len(p.jobs))])
	}
}

// next returns the next instant: often one at which something changes by time alone, or the last before it.
func (p *plan) next() time.Time {
	soonest := p.now().Add(time.Second)
	var turns []time.Time
	for _, j := range p.jobs {
		for _, at := range []time.Time{j.alert, j.unlock, j.unlock.Add(40 * time.Second), j.died.Add(15 * time.Second),
			j.silentFrom()} {
			turns = append(turns, at.Add(-1), at, at.Add(1))
		}
	}
	turns = slices.DeleteFunc(turns, func(at time.Time) bool { return at.Before(soonest) })
	if len(turns) > 0 && !p.one(3) {
		return slices.MinFunc(turns, time.Time.Compare)
	}
	return p.now().Truncate(time.Second).Add(p.upTo(40*time.Second) + time.Second)
}

// takes returns a process that takes a lock now.
func (p *plan) takes() *job {
	now := p.now().Truncate(time.Second)
	j := &job{taken: now, alert: now.Add(p.upTo(2 * time.Minute)), unreadable: p.one(8)}
	for n := 0; j.lock == "" || slices.ContainsFunc(p.jobs, func(o *job) bool { return o.lock == j.lock }); n++ {
		j.lock = fmt.Sprintf([]string{"job/%d", "run/%d", "pool#%d"}[p.chance.IntN(3)], n+1)
	}
	j.unlock = j.alert.Add(p.upTo(2 * time.Minute))
	if p.one(2) {
		j.beats = p.upTo(20 * time.Second)
		if p.one(2) {
			j.promise = 3 * j.beats
		}
	}
	return j
}

// works lets a process report if its rhythm says so, and reports whether it did.
func (j *job) works(now time.Time) (reported bool) {
	for j.beats > 0 {
		last := j.taken
		if n := len(j.reports); n > 0 {
			last = j.reports[n-1]
		}
		if last.Add(j.beats).After(now) {
			return reported
		}
		j.report(last.Add(j.beats))
		reported = true
	}
	return reported
}

func (j *job) report(at time.Time) {
	j.reports = append(j.reports, at)
	j.doubted = time.Time{}
	j.denied = !j.died.IsZero()
	if j.promise > 0 {
		j.alert = at.Add(j.promise)
		j.unlock = j.alert
	}
}

// befalls makes something happen to a process or to its lock.
func (p *plan) befalls(j *job) {
	now := p.now().Truncate(time.Second)
	switch p.chance.IntN(6) {
	case 0:
		j.beats = 0
	case 1:
		j.beats = 0
		j.died = now
		j.denied = false
	case 2:
		j.doubted = now
	case 3:
		j.waiters = p.chance.IntN(4)
	case 4:
		j.looked = now.Add(p.upTo(time.Minute))
	case 5:
		j.report(now)
	}
}

// publish writes the world as it would be in etcd.
func (p *plan) publish() {
	p.locks = nil
	p.queues = map[string][]metadata.Waiter{}
	for i, j := range p.jobs {
		p.locks = append(p.locks, p.record(j, int64(i+1)))
		name, _, _ := strings.Cut(j.lock, "#")
		for range j.waiters {
			p.wait(name, fmt.Sprint("w", p.chance.Int()), time.Second)
		}
	}
	for _, pair := range [][2]string{{"pair/a", "pair/b"}, {"pair/b", "pair/a"}} {
		if p.blocked {
			p.locks = append(p.locks, p.record(&job{lock: pair[0], taken: p.began, alert: p.began.Add(24 * time.Hour),
				unlock: p.began.Add(24 * time.Hour)}, 99))
			w := p.waiter(pair[0], pair[1], "host", 99)
			p.queues[pair[0]] = append(p.queues[pair[0]], w)
		}
	}
	slices.SortFunc(p.locks, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
}

func (r regime) unlockers(now time.Time) (all []protocol.Unlocker) {
	if r.none {
		return nil
	}
	u := unlocker("eu-1", now)
	sweep := *u.RemovalPolicy
	sweep.Exclude = r.exclude
	if r.buriesDead {
		sweep.Abandoned = "unlock"
	}
	u.RemovalPolicy = &sweep
	if r.watches {
		u.Mode = "alert-only"
	}
	if r.heldBack != "" {
		u.HeldBack = []string{r.heldBack}
	}
	all = append(all, u)
	if r.disagree {
		other := unlocker("eu-2", now)
		other.Mode = "alert-only"
		all = append(all, other)
	}
	return all
}

// record returns a process's lock as in etcd.
func (p *plan) record(j *job, pid int64) *metadata.Record {
	unlock := metadata.FormatTime(j.unlock)
	if j.unreadable {
		unlock = "soon"
	}
	fields := []metadata.Field{{Name: "uuid", Value: uuid(j.lock + j.taken.String())},
		{Name: "owner", Value: j.lock}, {Name: "hostname", Value: "host"}, {Name: "pid", Value: fmt.Sprint(pid)},
		{Name: "locked_at", Value: metadata.FormatTime(j.taken)},
		{Name: "alert_at", Value: metadata.FormatTime(j.alert)},
		{Name: "auto_unlock_at", Value: unlock, Version: int64(1 + len(j.reports))}}
	if strings.Contains(j.lock, "#") {
		fields = append(fields, metadata.Field{Name: "kind", Value: "semaphore"},
			metadata.Field{Name: "permits", Value: "1"}, metadata.Field{Name: "limit", Value: "9"})
	}
	written := j.taken
	if n := len(j.reports); n > 0 {
		written = j.reports[n-1]
		fields = append(fields, metadata.Field{Name: "alive", Value: lockrecord.FormatAlive(written, "")})
	}
	p.revision++
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = p.revision, p.revision
	}
	r := lockrecord.DecodeRecord(j.lock, fields)
	r.Seen = metadata.Seen{First: p.mono(j.taken), Changed: p.mono(written)}
	lockrecord.AttachStatements(&r, p.stated(&r, j.died, !j.denied), p.stated(&r, j.doubted, true))
	if !j.looked.IsZero() {
		r.Acknowledgement = &metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: "ann",
			Until: metadata.Time{Time: j.looked}}
	}
	return &r
}

// stated returns a witness's statement, and whether it came after all of the record's writes.
func (p *plan) stated(r *metadata.Record, at time.Time, last bool) *metadata.Statement {
	if at.IsZero() {
		return nil
	}
	revision := r.Revision + 1
	if !last {
		revision = r.Revision - 1
	}
	return &metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseProcessEnded,
		EndedAt: metadata.Time{Time: at}, Revision: revision, Seen: p.mono(at)}
}
