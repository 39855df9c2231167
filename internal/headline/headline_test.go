package headline_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var update = flag.Bool("update", false, "write testdata/sentences.txt as the sentences are now")

// kind is a lock in a state; class is its number in the table by policy, of which the one without a name is for all
// others.
type kind struct {
	subject
	class map[string]locks.Class
}

func all(c locks.Class) map[string]locks.Class { return map[string]locks.Class{"": c} }

// kinds are the locks of the table, without who waits, who looks and what a witness says.
func kinds() []kind {
	return []kind{
		{subject{name: "held", alert: 6 * m, unlock: h}, all(locks.ClassOnTime)},
		{subject{name: "beats", alert: h, unlock: h, reported: 4 * s, every: 20 * s}, all(locks.ClassOnTime)},
		{subject{name: "works", alert: -3 * m, unlock: 4*m + 10*s, reported: 4 * s, every: 20 * s,
			progress: "41 of 212"}, all(locks.ClassLate)},
		{subject{name: "lives", alert: -3 * m, unlock: h, reported: 60 * s, every: 20 * s}, all(locks.ClassLate)},
		{subject{name: "fell-silent", alert: -9 * m, unlock: 4*m + 10*s, reported: 61 * s, every: 20 * s,
			progress: "41 of 212"}, all(locks.ClassSilent)},
		{subject{name: "reported-once", alert: -m, unlock: h, reported: 2 * m}, all(locks.ClassLate)},
		{subject{name: "once-long-ago", alert: -7 * m, unlock: h, reported: 10 * m}, all(locks.ClassSilent)},
		{subject{name: "never-reported", alert: -9 * m, unlock: h}, all(locks.ClassSilent)},
		{subject{name: "endless", alert: h, unreadable: true}, all(locks.ClassMalformed)},
		{subject{name: "just-expired", alert: -h, unlock: -5 * s}, map[string]locks.Class{"": locks.ClassLeaving,
			"watch": locks.ClassOverdue, "exclude": locks.ClassOverdue}},
		{subject{name: "expired", alert: -h, unlock: -3*m - 40*s}, all(locks.ClassOverdue)},
		{subject{name: "progresses", alert: -3 * m, unlock: h, reported: 4 * m, every: 5 * m, progress: "41 of 212"},
			all(locks.ClassLate)},
	}
}

// classOf is the class of a lock of the table, as a person reads it there.
func (k kind) classOf(policy string) locks.Class {
	class, own := k.class[policy]
	if !own {
		class = k.class[""]
	}
	if k.suspected > 0 && class == locks.ClassLate {
		return locks.ClassSilent
	}
	proven := k.dead > 0 && !k.disputes && class != locks.ClassMalformed
	if !proven || k.unlock < 0 {
		return class
	}
	switch policy {
	case "report", "watch", "exclude":
		return locks.ClassDead
	}
	if k.dead > 20*s {
		return locks.ClassOverdue
	}
	return locks.ClassLeaving
}

// combinations are all kinds of locks with all that a witness can say of them. Two wait for each, and somebody looks.
func combinations() (rows []kind) {
	for _, k := range kinds() {
		for _, witness := range []func(*kind){
			func(*kind) {},
			func(k *kind) { k.suspected = 40 * s },
			func(k *kind) { k.dead = 7 * s },
			func(k *kind) { k.dead = 10 * m },
			func(k *kind) { k.dead, k.disputes = 40*s, k.reported > 0 },
		} {
			row := k
			witness(&row)
			row.waits, row.looked = []time.Duration{9 * m, 30 * s}, true
			rows = append(rows, row)
		}
	}
	return rows
}

func (k kind) describe() string {
	switch {
	case k.disputes:
		return k.name + ", dead for " + k.dead.String() + " but disputed"
	case k.dead > 0:
		return k.name + ", dead for " + k.dead.String()
	case k.suspected > 0:
		return k.name + ", suspected"
	}
	return k.name
}

// What the sentence says of who waits and who looks, where they do.
const (
	theyWait = " 2 waiting, the longest for 9m."
	annLooks = " ann is looking at it until 08:48 UTC."
)

// TestTheTable has each lock of the table under each policy, and what a witness says: its class is that of the table,
// and its sentence the one in testdata/sentences.txt, which somebody has read. Where nobody waits, or nobody looks, the
// sentence is the same without that; where etcd is silent, nothing of it is said.
func TestTheTable(t *testing.T) {
	var rows []string
	say := func(v headline.Headline, where string) {
		var steps []string
		for _, step := range v.Steps {
			steps = append(steps, string(step.Kind))
		}
		rows = append(rows, fmt.Sprintf("%2d %-8s %s\n\t%s [%s]\n", v.Class, v.Class.Severity(), where,
			v.String(now()), strings.Join(steps, " ")))
	}
	for _, k := range combinations() {
		for _, u := range policies() {
			c := u.cluster(k.subject)
			v := headline.For(c)
			where := k.describe() + ", " + u.name
			if want := k.classOf(u.name); v.Class != want {
				t.Errorf("%s: it is %v, want %v: %s", where, v.Class, want, v.String(now()))
			}
			say(v, where)
			k.without(t, u, v.String(now()))
			c.SilentSince = ago(12 * s)
			if v := headline.For(c); v.Class != locks.ClassStale || strings.Contains(v.Details.String(now()), k.name) {
				t.Errorf("%s: while etcd is silent it says %q", where, v.String(now()))
			}
		}
	}
	for where, c := range systems() {
		v := headline.For(c)
		say(v, where+": "+v.Command())
	}
	slices.Sort(rows)
	proctest.Golden(t, "testdata/sentences.txt", *update, strings.Join(rows, ""))
}

// without checks the sentences about the lock where nobody waits and where nobody looks.
func (k kind) without(t *testing.T, u runs, full string) {
	t.Helper()
	for range 2 {
		if k.looked = !k.looked; k.classOf(u.name) == locks.ClassOnTime {
			return // then the sentence is not about the lock
		}
		alone := k.subject
		alone.waits = nil
		looks := full
		if !k.looked {
			looks = strings.Replace(full, annLooks, "", 1)
		}
		for x, want := range map[*subject]string{&k.subject: looks, &alone: strings.Replace(looks, theyWait, "", 1)} {
			v := headline.For(u.cluster(*x))
			if got := v.String(now()); got != want {
				t.Errorf("%s, %s: with %d waiters, acknowledged %v it says\n%s, want\n%s", u.name, k.describe(),
					len(x.waits), x.looked, got, want)
			}
		}
	}
}

// systems are situations with something else than one lock.
func systems() map[string]headline.Input {
	sound := policies()[1]
	changed := func(change func(*headline.Input), subjects ...subject) headline.Input {
		c := sound.cluster(subjects...)
		change(&c)
		return c
	}
	late := kinds()[2].subject
	shared := late
	shared.name, shared.shares = "pool", 3
	brake := sound
	brake.heldBack = []string{string(staleness.RuleBrake)}
	clock := sound
	clock.heldBack = []string{string(staleness.RuleGap), string(staleness.RuleClock)}
	unverified := sound
	unverified.heldBack = []string{string(staleness.RuleUnverified)}
	return map[string]headline.Input{
		"their clocks are unverified":        unverified.cluster(late),
		"etcd is silent, and a lock is late": changed(func(c *headline.Input) { c.SilentSince = ago(12 * s) }, late),
		"etcd is silent, and why is known": changed(func(c *headline.Input) {
			c.SilentSince, c.SilenceCause = ago(12*s), "no leader"
		}),
		"no unlocker runs":      runs{}.cluster(late),
		"etcd is full":          changed(func(c *headline.Input) { c.Alarm = "etcd is full" }, late),
		"their clocks disagree": clock.cluster(late),
		"they brake":            brake.cluster(late),
		"they disagree": changed(func(c *headline.Input) {
			other := c.Running[0]
			other.ID, other.Mode = "eu-2", "alert-only"
			c.Running = append(c.Running, other)
		}),
		"one waits for itself": changed(func(c *headline.Input) {
			c.Cycles = []deadlock.Cycle{{Since: ago(4 * m), Waits: cycle().Waits[:1]}}
		}, late),
		"two wait for each other": changed(func(c *headline.Input) { c.Cycles = []deadlock.Cycle{cycle()} }, late),
		"nobody takes it": changed(func(c *headline.Input) { c.Unclaimed = []diagnosis.Unclaimed{free(3)} },
			late),
		"one waits for nobody": changed(func(c *headline.Input) { c.Unclaimed = []diagnosis.Unclaimed{free(1)} }),
		"several hold it":      sound.cluster(shared),
		"nothing is held":      sound.cluster(),
		"two are late":         sound.cluster(late, kinds()[3].subject, kinds()[8].subject),
		"no time is readable":  sound.cluster(subject{name: "weekly", unreadable: true}),
		"a default ends it": changed(func(c *headline.Input) {
			c.Combined.Policy.DefaultAutoUnlockAfter = h
		}, kinds()[8].subject),
		"too many permits are out": changed(func(c *headline.Input) {
			c.Inconsistent = []diagnosis.Inconsistent{{Name: "pool", Why: "has 4 of 3 permits out"}}
		}, kinds()[0].subject),
		"it lies elsewhere": sound.cluster(subject{name: "/mutexes/100%", alert: h, unlock: h, misplaced: true}),
	}
}

// TestCommandsFollowThePlace: a pod, a machine, either, or nothing; and a process whose work outlives it.
func TestCommandsFollowThePlace(t *testing.T) {
	const ps, logs, kill = "ssh HOST ps -o pid,stat,etime,args -p 17 --ppid 17", "kubectl logs --since=30m POD",
		"ssh HOST kill 17"
	for host, wants := range map[string][]string{"vm": {ps, kill}, "old-box": {ps, kill}, "db1.example.org": {ps, kill},
		"web-1234567": {ps, kill}, "build-abcde": {ps, kill}, "x2k7p": {ps, kill}, "-$(id)": {ps, kill}, "": {},
		"orders-7c9d8f6b5-x2k7p": {"kubectl get pod POD", logs, "kubectl delete pod POD"},
		"etcd-0":                 {"kubectl get pod POD", logs, ps, "kubectl delete pod POD", kill},
		"in a namespace": {"kubectl get pod -n shop web", "kubectl logs --since=30m -n shop web",
			"kubectl delete pod -n shop web"},
		"detached": {ps},
	} {
		x := kinds()[7].subject
		x.host, x.pid = host, 17
		var got []string
		for _, step := range headline.For(policies()[0].cluster(x)).Steps {
			if step.Kind == headline.LookAtLock || step.Kind == headline.EndProcess {
				got = append(got, step.Commands...)
			}
		}
		got = slices.DeleteFunc(got, func(line string) bool { return line == "mutexctl show never-reported" })
		for i, want := range wants {
			wants[i] = strings.NewReplacer("HOST", text.ShellOperand(host), "POD", host).Replace(want)
		}
		if diff := cmp.Diff(wants, got); diff != "" {
			t.Errorf("on %q:\n%s", host, diff)
		}
	}
}

func TestAutoUnlockSaysUntilWhenHeartbeatsExtend(t *testing.T) {
	c := policies()[0].cluster()
	for until, want := range map[time.Duration]string{
		0:       "no: its reports extend it; without them in 1h",
		6 * h:   "no: heartbeats extend it until Thu 13:48 UTC",
		200 * h: "no: heartbeats extend it until 2026-12-04 15:48 UTC",
		h:       "in 1h: ", // the last one was written
		m:       "no: its reports extend it; without them in 1h",
	} {
		l := subject{name: "beats", alert: h, unlock: h, reported: 4 * s, every: 20 * s}.lock(&c.Combined)
		if until > 0 {
			l.HeartbeatUntil = now().Add(until)
		}
		when, why := c.AutoUnlock(&l)
		if got := when.String(c.Now) + ": " + why.String(c.Now); got != want {
			t.Errorf("heartbeats for %v: %s, want %s", until, got, want)
		}
	}
}

// TestFirstNonemptyClassIsReported puts each two locks of the table side by side.
func TestFirstNonemptyClassIsReported(t *testing.T) {
	for _, u := range policies() {
		rows := combinations()
		for i, a := range rows {
			for _, b := range rows[:i] {
				b.name += " too"
				want := min(a.classOf(u.name), b.classOf(u.name))
				v := headline.For(u.cluster(a.subject, b.subject))
				named := map[string]kind{a.name: a, b.name: b}[v.Lock]
				if v.Class != want || named.classOf(u.name) != want {
					t.Fatalf("%s: %s; %s: %v names %q", u.name, a.describe(), b.describe(), v.Class, v.Lock)
				}
			}
		}
	}
}

// TestSystemsComeBeforeLocks has one of each class, and takes the first away until nothing is left.
func TestSystemsComeBeforeLocks(t *testing.T) {
	c := policies()[0].cluster()
	c.Ranking = &locks.Ranking{}
	for _, x := range []subject{{name: "5", alert: -h, unlock: -h}, {name: "6", alert: h, unlock: h, dead: m},
		{name: "7", alert: -m, unlock: h}, {name: "8", alert: -m, unlock: h, reported: s, every: 20 * s},
		{name: "9", alert: h, unreadable: true}, {name: "10", alert: -h, unlock: -s}} {
		c.Ranking.Add(x.lock(&c.Combined))
	}
	c.SilentSince = ago(9 * s)
	c.Cycles = []deadlock.Cycle{cycle()}
	c.Unclaimed = []diagnosis.Unclaimed{free(2)}
	next := func(want locks.Class) {
		t.Helper()
		if v := headline.For(c); v.Class != want {
			t.Errorf("the sentence is of class %v, want %v", v.Class, want)
		}
	}
	next(locks.ClassStale)
	c.SilentSince = time.Time{}
	running := c.Running
	c.Running = nil
	next(locks.ClassUnlockers)
	c.Running = running
	next(locks.ClassDeadlock)
	c.Cycles = nil
	next(locks.ClassUnclaimed)
	c.Unclaimed = nil
	next(locks.ClassOverdue)
}

// TestWithinAClass: each comes before those that follow it.
func TestWithinAClass(t *testing.T) {
	u := policies()[0]
	rows := []subject{
		{name: "z, most time is lost", alert: -m, unlock: h, waits: []time.Duration{m, 4 * m}},
		{name: "y, less is lost", alert: -m, unlock: h, waits: []time.Duration{4 * m}},
		{name: "x, late for longer", alert: -h, unlock: h},
		{name: "a, by name", alert: -m, unlock: h},
		{name: "b", alert: -m, unlock: h},
		{name: "c, somebody looks", alert: -2 * h, unlock: h, waits: []time.Duration{h, h}, looked: true},
	}
	for ; len(rows) > 0; rows = rows[1:] {
		if v := headline.For(u.cluster(rows...)); v.Lock != rows[0].name {
			t.Errorf("%q is named before %q", v.Lock, rows[0].name)
		}
	}
	sound := []subject{
		{name: "z", alert: h, unlock: h, waits: []time.Duration{h}},
		{name: "many wait", alert: h, unlock: h, waits: []time.Duration{59 * m, 59 * m}},
	}
	if v := headline.For(u.cluster(sound...)); v.Lock != "z" || !strings.Contains(v.String(now()), "behind z") {
		t.Errorf("while all is well the longest wait is that for z: %s", v.String(now()))
	}
}

// TestClassChangesWhenPredicted: at NextClassChange the class is another one, and one nanosecond before it is not.
func TestClassChangesWhenPredicted(t *testing.T) {
	turned := 0
	for _, u := range policies() {
		f := u.cluster().Combined
		for _, k := range combinations() {
			r := k.record()
			row := locks.NewRow(r, &f, staleness.Moment{Wall: now(), Mono: mono}, &locks.WaitSummary{}, "")
			class := row.Class
			at := row.NextClassChange(&f, now())
			if at.IsZero() {
				continue
			}
			turned++
			if before := row.ClassAt(&f, at.Add(-1)); before != class {
				t.Errorf("%s, %s: it is %v, and %v before it turns", u.name, k.describe(), class, before)
			}
			if k.suspected == 0 && row.ClassAt(&f, at) == class {
				t.Errorf("%s, %s: it is still %v", u.name, k.describe(), class)
			}
		}
	}
	if turned < 20 {
		t.Errorf("only %d turn: nothing was tested", turned)
	}
}
