//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// deadlineChecks are about the unlocker, which removes what its holder left.
func deadlineChecks() []check {
	return []check{
		{name: "abandoned and unlocked", rule: "protocol.md#the-idea", needs: []string{"queue"}, orders: true,
			wants: "the lock of a killed holder alerts, is unlocked, and the next waiter gets it", pair: abandoned},
		{name: "alive", rule: "protocol.md#transactions",
			wants: "a holder of a short lock keeps it by alive, and loses it in time when it stops", alone: keptAlive},
		{name: "heartbeat", rule: "protocol.md#transactions", needs: []string{"heartbeat"},
			wants: "a heartbeat keeps the lock while the process lives, and no longer", alone: heartbeat},
		{name: "longer by alive", rule: "protocol.md#transactions", needs: []string{"durations"}, short: true,
			wants: "alive can ask for another time", alone: longer},
	}
}

// unlocker runs a real one on the scene, with short times.
func (s *scene) unlocker() (addr string) {
	s.t.Helper()
	addr = proctest.FreeAddr(s.t)
	proctest.Start(s.t, programs.Command(s.t, "unlocker", "--policy=auto-unlock", "--sweep.min-warning=1500ms",
		"--sweep.clock-skew=500ms", "--etcd.endpoints="+strings.Join(s.target, ","),
		"--locks.prefix="+s.layout.Prefix(), "--web.listen-address="+addr, "--web.shutdown-delay=0s",
		"--metrics.lock-series=all"))
	proctest.Answers(s.t, "http://"+addr+"/readyz", 200)
	return addr
}

// metric is the value of a sample, by the beginning of its line.
func metric(addr, sample string) (float64, error) {
	_, body, err := proctest.Get(plainHTTP(), "http://"+addr+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", sample)
}

func (s *scene) shows(addr, sample string, want float64) {
	s.t.Helper()
	eventually(s.t, sample, func() error {
		got, err := metric(addr, sample)
		if err == nil && got != want {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}

// abandoned kills a holder of a, for whose lock b waits.
func abandoned(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	addr := s.unlocker()
	dead, next := s.open(a), s.open(b)
	l := dead.acquire("night/import", want{try: true, alert: 3, unlock: 15, purpose: "import of the night"})
	wait := next.begin(l.name, want{})
	s.queued(l.name, 1)
	dead.kill()
	s.shows(addr, "unlocker_alerting_locks_total", 1)
	over := s.record(l.name).AutoUnlockAt
	got := wait.granted()
	if got.at.Before(over) {
		t.Errorf("the lock was given on %v before its deadline", over.Sub(got.at))
	}
	if got.token <= l.token {
		t.Errorf("token %d came after %d", got.token, l.token)
	}
	ending := s.keys(s.layout.History(l.uuid))
	if len(ending) != 1 {
		t.Errorf("the ending of the hold is not written down: %q", ending)
	}
	got.mustRelease()
	s.free(l.name)
}

// keptAlive keeps a lock of 12 s for 30 s, then stops. The machine may be busy: a call may take seconds.
func keptAlive(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	s.unlocker()
	l := s.open(c).acquire("alive", want{try: true, alert: 6, unlock: 12})
	end := time.Now().Add(30 * time.Second)
	for i := 1; time.Now().Before(end); i++ {
		next := time.Now().Add(2 * time.Second)
		if a := l.alive(fmt.Sprintf("step %d", i)); a.Error != "" {
			t.Fatalf("alive: %s", a.line)
		}
		eventually(t, "the next step", func() error { return past(next) })
	}
	if got := l.check(); got.Lost != nil {
		t.Fatalf("it was kept alive: %s", got.line)
	}
	l.lostAs("deadline")
	s.free(l.name)
	l.refusesAll()
}

func heartbeat(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	s.unlocker()
	d := s.open(c)
	l := d.acquire("heartbeat", want{try: true, alert: 8, unlock: 12, heartbeat: true})
	first := s.record(l.name)
	eventually(t, "a heartbeat", func() error {
		if s.record(l.name).Alive == nil {
			return errors.New("there was none")
		}
		return nil
	})
	const beside = "4 of 9, says a process beside it"
	alive := metadata.FormatTime(time.Now()) + " " + beside
	s.write(l.name, []metadata.Field{{Name: metadata.FieldAlive, Value: alive}})
	end := first.AutoUnlockAt.Add(12 * time.Second)
	eventually(t, "more than its time", func() error { return past(end) })
	if got := l.check(); got.Lost != nil {
		t.Fatalf("it was lost: %s", got.line)
	}
	r := s.record(l.name)
	if r.UUID != l.uuid || !r.AutoUnlockAt.After(first.AutoUnlockAt) {
		t.Errorf("the record is %+v", r.Record)
	}
	if progress(r) != beside {
		t.Errorf("a heartbeat is no progress, and it made %q of what another process with the uuid reported",
			progress(r))
	}
	if alert := r.AlertAt.Sub(r.LockedAt); alert > 9*time.Second {
		t.Errorf("a heartbeat is no progress, and it moved the alert to %v after the acquisition", alert)
	}
	d.kill()
	s.free(l.name)
}

func longer(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	l := s.open(c).acquire("longer", want{try: true})
	before := time.Now()
	l.d.must(request{"do": "alive", "lock": l.number, "progress": "on", "alert_after": 600.0, "unlock_after": 900.0})
	r := s.record(l.name)
	for what, at := range map[string]struct{ got, from time.Time }{
		"alert_at":       {r.AlertAt, before.Add(600 * time.Second)},
		"auto_unlock_at": {r.AutoUnlockAt, before.Add(900 * time.Second)},
	} {
		if late := at.got.Sub(at.from); late < -time.Second || late > *limit {
			t.Errorf("%s is %s, want about %s", what, metadata.FormatTime(at.got), metadata.FormatTime(at.from))
		}
	}
	l.mustRelease()
	s.free(l.name)
}
