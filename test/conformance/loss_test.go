//go:build conformance

package conformance

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var lossChecks = []check{
	{name: "force unlock", rule: "protocol.md#holding-a-lock", short: true,
		wants: "a holder learns at once that an operator ended its hold", alone: forceUnlock},
	{name: "deleted by hand", rule: "protocol.md#holding-a-lock", short: true,
		wants: "a holder learns at once that its record is gone", alone: deletedByHand},
	{name: "replaced", rule: "protocol.md#transactions", short: true,
		wants: "a former holder does not touch the next holder's record", alone: replaced},
	{name: "same uuid, another token", rule: "protocol.md#errors-are-not-answers", short: true,
		wants: "alive and release compare the token, not only the uuid", alone: sameUUID},
	{name: "asked to finish", rule: "protocol.md#keys-that-operators-write", needs: "asked", short: true,
		wants: "a holder learns who asks it to finish, and why", alone: askedToFinish},
	{name: "deadlines never move back", rule: "protocol/operators.md#giving-more-time", short: true,
		wants: "alive does not shorten what an operator gave", alone: neverBack},
	{name: "silent watch of a holder", rule: "protocol.md#holding-a-lock",
		wants: "a holder whose watch is silent reads again by itself", alone: silentWatchOfHolder},
	{name: "lock delay", rule: "protocol.md#transactions", short: true,
		wants: "nobody takes a lock in its delay, and a waiter takes it when the delay is over", alone: lockDelay},
	{name: "slow answer", rule: "protocol.md#transactions",
		wants: "the local deadline counts from before the send, not from the answer", alone: slowAnswer},
	{name: "cut off", rule: "protocol.md#transactions",
		wants: "a holder that cannot reach etcd stops before its lock can be removed",
		alone: toldInTime((*wire).stall)},
	{name: "connection refused", rule: "protocol.md#transactions", short: true,
		wants: "a holder whose etcd is gone stops before its lock can be removed", alone: toldInTime((*wire).cutOff)},
	{name: "paused", rule: "protocol.md#fencing",
		wants: "a holder that slept past its deadline does nothing to the next one", alone: paused},
	{name: "driver ends", rule: "protocol.md#the-idea", short: true, wants: "the end of a process ends no hold",
		alone: driverEnds},
}

// mutexctl runs the real mutexctl on the scene, which must succeed, and returns its output.
func (s *scene) mutexctl(args ...string) string {
	s.t.Helper()
	r := proctest.Run(s.t, programs.Command(s.t, "mutexctl", append([]string{
		"--etcd.endpoints=" + strings.Join(s.target, ","), "--locks.prefix=" + s.layout.Prefix()}, args...)...))
	if r.Code != 0 {
		s.t.Fatalf("mutexctl %q: %+v", args, r)
	}
	return r.Stdout
}

// lostAs waits for the event and expects one of these reasons, also from check.
func (l *lock) lostAs(reasons ...string) answer {
	l.d.t.Helper()
	e := l.event("lost")
	if !slices.Contains(reasons, e.Reason) {
		l.d.t.Errorf("%s was lost for %q, want %q", l.name, e.Reason, reasons)
	} else if got := l.check(); got.Lost == nil || *got.Lost != e.Reason {
		l.d.t.Errorf("the event says %q, check says %s", e.Reason, got.line)
	}
	return e
}

func (l *lock) refusesAll() {
	l.d.t.Helper()
	if a := l.alive("still here"); a.Error != "lost" || a.Reason == "" {
		l.d.t.Errorf("alive of a lost lock: %s, want lost with a reason", a.line)
	}
	if a := l.release(); a.Error != "lost" || a.Reason == "" {
		l.d.t.Errorf("release of a lost lock: %s, want lost with a reason", a.line)
	}
}

func forceUnlock(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("night/import", want{try: true})
	s.forceUnlock(l)
	l.lostAs("forced")
	l.refusesAll()
	s.free(l.name)
}

func (s *scene) delete(name string) {
	s.txn(clientv3.OpDelete(s.layout.Record(name), clientv3.WithPrefix()))
}

// write puts the fields of a record.
func (s *scene) write(name string, fields []metadata.Field) (token int64) {
	var puts []clientv3.Op
	for _, f := range fields {
		puts = append(puts, clientv3.OpPut(s.layout.Field(name, f.Name), f.Value))
	}
	return s.txn(puts...)
}

// somebody returns the record of another holder.
func (s *scene) somebody(uuid string) []metadata.Field {
	now := time.Now()
	fields, err := lockrecord.Draft{UUID: uuid,
		Identity: metadata.Identity{Owner: "somebody", Hostname: "elsewhere", PID: 1}, LockedAt: now,
		AlertAt: now.Add(time.Hour), AutoUnlockAt: now.Add(time.Hour)}.Fields()
	proctest.Must(s.t, err)
	return fields
}

func deletedByHand(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("deleted", want{try: true})
	s.delete(l.name)
	l.lostAs("deleted")
	l.refusesAll()
	s.free(l.name)
}

func replaced(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("replaced", want{try: true})
	s.delete(l.name)
	other := uuid.NewString()
	s.write(l.name, s.somebody(other))
	l.lostAs("replaced", "deleted") // as it was when the holder looked
	l.refusesAll()
	if r := s.record(l.name); r.UUID != other || progress(r) != "" {
		t.Errorf("the record of the next holder is %+v", r.Record)
	}
}

// sameUUID silences the watch, so that only transactions can reveal the loss.
func sameUUID(t *testing.T, s *scene, c *client) {
	line := newWire(t, s.target[0])
	line.judgeBy(func(r sent) fate { return fate{loseAnswer: r.watches()} })
	for _, step := range []string{"alive", "release"} {
		l := s.open(c, line.Addr).acquire("again "+step, want{try: true})
		record := s.record(l.name)
		s.delete(l.name)
		token := s.write(l.name, record.Fields)
		a := l.release
		if step == "alive" {
			a = func() answer { return l.alive("on") }
		}
		if got := a(); got.Error != "lost" {
			t.Fatalf("%s of a hold with the same uuid and another token: %s, want lost", step, got.line)
		}
		if step == "alive" { // the answer is not all: whoever works beside the caller is told, too
			l.lostAs("replaced")
		}
		if r := s.record(l.name); r.Token != token || r.AutoUnlockAt != record.AutoUnlockAt {
			t.Errorf("%s changed a hold that is not its own: %+v", step, r.Record)
		}
	}
}

func askedToFinish(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("asked", want{try: true})
	s.mutexctl("ask", l.name, "--reason=the deploy waits")
	e := l.event("asked")
	if e.Reason != "the deploy waits" || e.By == "" {
		t.Errorf("the event is %s", e.line)
	}
	if got := l.check(); got.Asked == nil || got.Asked.Reason != "the deploy waits" || got.Asked.By != e.By ||
		got.Lost != nil {
		t.Errorf("check says %s", got.line)
	}
	s.ends(l)
}

func neverBack(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("more time", want{try: true})
	later := metadata.FormatTime(time.Now().Add(time.Hour))
	s.put(s.layout.Field(l.name, lockrecord.FieldAutoUnlockAt), later)
	l.mustAlive("on")
	if got := metadata.FormatTime(s.record(l.name).AutoUnlockAt); got != later {
		t.Errorf("auto_unlock_at is %s, was %s", got, later)
	}
	s.ends(l)
}

// silentWatchOfHolder covers a watch that is never confirmed, and one without events.
func silentWatchOfHolder(t *testing.T, s *scene, c *client) {
	var locks []*lock
	for about, f := range map[string]fate{"unconfirmed": {loseAnswer: true}, "mute": {mute: true}} {
		line := newWire(t, s.target[0])
		line.judgeBy(func(r sent) fate {
			if r.watches() {
				return f
			}
			return fate{}
		})
		l := s.open(c, line.Addr).acquire(about, want{try: true, alert: 600, unlock: 900})
		line.hasReadOnce()
		s.delete(l.name)
		locks = append(locks, l)
	}
	for _, l := range locks {
		// A holder reads at least once a minute.
		if e := l.eventWithin("lost", time.Minute+*limit); e.Reason != "deleted" {
			t.Errorf("%s: it was lost for %q, want deleted", l.name, e.Reason)
		}
	}
}

// hasReadOnce waits for a holder's read after it opened its watch. A holder that reads nothing then may still do so
// later.
func (w *wire) hasReadOnce() {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		read := w.reads > 0
		w.mu.Unlock()
		if read {
			return
		}
	}
}

func lockDelay(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	l := d.acquire("delayed/import", want{try: true})
	s.forceUnlock(l, "--lock-delay=6s")
	l.lostAs("forced")
	if len(s.get(s.layout.Delay(l.name))) == 0 {
		t.Fatal("mutexctl left no delay")
	}
	if a := d.try(l.name); a.Error == "" {
		t.Fatalf("a try in the delay says %s, want held, no holder, delayed", a.line)
	} else if a.Error != "held" || a.Holder != nil || !a.Delayed || a.Message == "" {
		t.Errorf("a try in the delay says %s, want held, no holder, delayed", a.line)
	}
	next := d.begin(l.name, want{wait: limit.Seconds()}).granted()
	if left := s.get(s.layout.Delay(l.name)); len(left) > 0 && next.token > left[0].CreateRevision {
		t.Errorf("it got the lock in its delay: %s", left[0].Value)
	}
	// An operator ends a delay early, so the waiter need not wait for its lease to expire.
	s.forceUnlock(next, "--lock-delay=10m")
	next.lostAs("forced")
	wait := d.begin(l.name, want{wait: limit.Seconds()})
	if c.claims("queue") {
		s.queued(l.name, 1)
	}
	s.mutexctl("force-unlock", "--end-delay", l.name, "--reason=the test")
	s.ends(wait.granted())
}

func (s *scene) forceUnlock(l *lock, args ...string) {
	s.t.Helper()
	s.mutexctl(append([]string{"force-unlock", l.name, "--uuid=" + l.uuid, "--yes", "--reason=the test"}, args...)...)
}

// slowAnswer delays the answers to an acquire and an alive by more than the margin, then cuts the holder off.
func slowAnswer(t *testing.T, s *scene, c *client) {
	const life = 30.0
	slow := fate{slow: 6 * time.Second}
	begun := func(name string, first want) (*lock, *wire) {
		line := newWire(t, s.target[0])
		d := s.open(c, line.Addr)
		if name == "acquire" {
			line.judgeNext(slow)
		}
		return d.acquire(name, first), line
	}
	taken, takenLine := begun("acquire", want{try: true, alert: life / 2, unlock: life})
	takenLine.stall()
	extended, extendedLine := begun("alive", want{try: true, alert: life / 2, unlock: life})
	extendedLine.judgeNext(slow)
	extended.mustAlive("on")
	extendedLine.stall()
	s.endsInTime(taken)
	s.endsInTime(extended)
}

// endsInTime wants the holder to be told that its time is over before its record says so.
func (s *scene) endsInTime(l *lock) (told time.Time) {
	s.t.Helper()
	e := l.lostAs("deadline")
	if over := s.record(l.name).AutoUnlockAt; !e.at.Before(over) {
		s.t.Errorf("%s: it was told %v after the time from which on the lock could be removed", l.name, e.at.Sub(over))
	}
	return e.at
}

// toldInTime expects a holder to be told of its deadline after a good part of its time and before the end. Its release
// then removes what it still has in etcd.
func toldInTime(cut func(*wire)) func(*testing.T, *scene, *client) {
	return func(t *testing.T, s *scene, c *client) {
		const life = 30.0
		line := newWire(t, s.target[0])
		s.timeout = 1
		d := s.open(c, line.Addr)
		began := time.Now()
		l := d.acquire("cut off", want{wait: 30, alert: life / 2, unlock: life})
		cut(line)
		if early := s.endsInTime(l).Sub(began); early < seconds(life*0.8) {
			t.Errorf("it was told %v after the acquisition of a lock for %v s", early, life)
		}
		line.heal()
		if a := l.alive("still here"); a.Error != "lost" {
			t.Errorf("alive after the loss was told: %s", a.line)
		}
		if a := l.release(); a.Error != "" && a.Error != "lost" { // lost, if an earlier send of the release did it
			t.Errorf("release after the time was over, of a record that is still there: %s", a.line)
		}
		s.free(l.name) // there is no unlocker here
	}
}

func paused(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	l := d.acquire("paused", want{try: true, alert: 2, unlock: 4})
	proctest.Must(t, d.proc.Pause())
	syscall.Kill(-d.proc.PID(), syscall.SIGSTOP)
	over := s.record(l.name).AutoUnlockAt
	time.Sleep(time.Until(over))
	s.delete(l.name)
	other := uuid.NewString()
	token := s.write(l.name, s.somebody(other))
	syscall.Kill(-d.proc.PID(), syscall.SIGCONT)
	d.proc.Resume()
	l.lostAs("deadline", "replaced", "deleted")
	l.refusesAll()
	if r := s.record(l.name); r.UUID != other || r.Token != token || progress(r) != "" {
		t.Errorf("the record of the next holder is %+v", r.Record)
	}
}

func driverEnds(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	l := d.acquire("process ends", want{try: true})
	d.in.Close()
	if code := d.proc.Wait(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if r := s.record(l.name); r.UUID != l.uuid {
		t.Errorf("the end of a process ended its hold: %+v", r.Record)
	}
}
