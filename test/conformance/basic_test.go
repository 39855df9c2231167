//go:build conformance

package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var basicChecks = []check{
	{name: "take and give back", rule: "protocol.md#transactions", short: true,
		wants: "a lock that is held has a readable record without lease, and nothing is left of a released one",
		alone: takeAndGiveBack},
	{name: "held by another", rule: "protocol.md#transactions", short: true, orders: true,
		wants: "a refusal says who holds the lock, and how many wait for it", pair: heldByAnother},
	{name: "no unlocker", rule: "protocol.md#waiting", short: true,
		wants: "an error says of an overdue lock that no unlocker is running, if none is", alone: noUnlocker},
	{name: "which process holds it", rule: "protocol/witnesses.md#dead-holders", short: true,
		wants: "what a record says of the holder's process and pod is true", alone: whichProcess},
}

func takeAndGiveBack(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	before := time.Now()
	l := d.acquire("billing/invoice-run", want{try: true, purpose: "invoices of August",
		attributes: map[string]any{"rows": 7, "dry": true, "ticket": "OPS-1"}})
	r := s.recordOf(l)
	if r.Owner != "conformance" || r.Purpose != "invoices of August" || r.Hostname == "" || r.PID == 0 ||
		r.Client == "" {
		t.Errorf("the record does not say who holds it: %+v", r.Record)
	}
	if got, want := fmt.Sprint(r.Attributes), "map[dry:true rows:7 ticket:OPS-1]"; got != want {
		t.Errorf("the attributes are %s, want %s", got, want)
	}
	if r.LockedAt.Before(before.Add(-time.Second)) || r.LockedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("locked_at is %v, and it is %v", r.LockedAt, time.Now())
	}
	if alert, unlock := r.AlertAt.Sub(r.LockedAt), r.AutoUnlockAt.Sub(r.LockedAt); alert.Round(time.Second) !=
		time.Minute || unlock.Round(time.Second) != 2*time.Minute {
		t.Errorf("the deadlines are %v and %v after locked_at, want 1m and 2m", alert, unlock)
	}
	if got := l.check(); got.Asked != nil {
		t.Errorf("a fresh lock: %s", got.line)
	}
	l.lostNothing()
	refused(t, d.try(l.name), l)
	l.mustAlive("3 of 9")
	after := s.record(l.name)
	if progress(after) != "3 of 9" || after.AutoUnlockAt.Before(r.AutoUnlockAt) || after.Token != l.token {
		t.Errorf("after alive the record is %+v, before it was %+v", after.Record, r.Record)
	}
	s.ends(l)
	l.lostNothing()
	again := d.acquire(l.name, want{try: true})
	if again.uuid == l.uuid || again.token <= l.token {
		t.Errorf("the second hold is %s with token %d, the first was %s with %d", again.uuid, again.token, l.uuid,
			l.token)
	}
	again.mustRelease()
}

func heldByAnother(t *testing.T, s *scene, a, b *client) {
	one, two := s.open(a), s.open(b)
	l := one.acquire("shared", want{try: true, purpose: "for the test"})
	refused := two.try(l.name)
	h := refused.Holder
	if refused.Error != "held" || h == nil || h.UUID != l.uuid || h.Owner != "conformance" ||
		h.Purpose != "for the test" || h.Hostname == "" {
		t.Errorf("%s was told %s, want held by %s for the test", b.name, refused.line, l.uuid)
	}
	if refused.Message == "" {
		t.Errorf("there is no message for a human: %s", refused.line)
	}
	l.mustAlive("on")
	if a.claims("queue") {
		l = heldByWaiting(s, l, two)
	}
	l.mustRelease()
	next := two.acquire(l.name, want{try: true})
	next.comesAfter(l)
	s.ends(next)
}

func noUnlocker(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	const name = "overdue"
	put := func(field, value string) { s.txn(clientv3.OpPut(s.layout.Field(name, field), value)) }
	says := func(when string, expected bool) {
		t.Helper()
		for _, w := range []want{{try: true}, {wait: 1}} {
			a := d.do(w.request(name))
			if got := strings.Contains(a.Message, "no unlocker is running"); a.Holder == nil || got != expected {
				t.Errorf("%s it says %s", when, a.line)
			}
		}
	}
	put(lockrecord.FieldUUID, uuid.NewString())
	put(lockrecord.FieldAutoUnlockAt, metadata.FormatTime(time.Now().Add(time.Hour)))
	says("before the deadline", false)
	put(lockrecord.FieldAutoUnlockAt, metadata.FormatTime(time.Now().Add(-time.Hour)))
	presence := `{"now":"` + metadata.FormatTime(time.Now()) + `"}`
	s.txn(clientv3.OpPut(s.layout.Unlocker("stale"), presence))
	says("after the deadline", true)
	s.txn(clientv3.OpPut(s.layout.Unlocker("eu-1"), presence, clientv3.WithLease(s.lease())))
	says("while an unlocker is running", false)
}

// heldByWaiting makes a driver get the lock by waiting, and checks how many waiters another driver then sees: some
// clients keep their ticket while they hold the lock.
func heldByWaiting(s *scene, l *lock, other *driver) *lock {
	counts := func(about string, want int) {
		s.t.Helper()
		if a := other.try(l.name); a.Error != "held" || a.Waiting != nil && *a.Waiting != want {
			s.t.Errorf("%s, %s was told %s, want held, waiting %d or not counted", about, other.client.name, a.line,
				want)
		}
	}
	wait := s.queues(l.d, l.name, want{}, 1)
	counts("while one waits", 1)
	l.mustRelease()
	next := wait.granted()
	counts("when the waiter has the lock", 0)
	return next
}

// whichProcess expects optional members to be true if present: a wrong one would prove the death of a live process.
func whichProcess(t *testing.T, s *scene, c *client) {
	pod := metadata.Process{PodNamespace: "billing", PodName: "worker-0", PodUID: "9d7c9a9e", Container: "main"}
	inside := s.identity(c, "POD_NAMESPACE=billing", "POD_NAME=worker-0", "POD_UID=9d7c9a9e", "CONTAINER_NAME=main")
	if got := ofPod(inside); got != pod && got != (metadata.Process{}) {
		t.Errorf("in a pod the record says %+v, want %+v, as the environment does, or nothing", got, pod)
	}
	outside := ofPod(s.identity(c, "POD_NAMESPACE=billing", "POD_NAME=", "POD_UID=", "CONTAINER_NAME=main"))
	if outside.PodName == "" && outside.PodUID == "" && outside != (metadata.Process{}) {
		t.Errorf("the record names a container or namespace without a pod: %+v", outside)
	}
	odd := ofPod(s.identity(c, "POD_NAMESPACE=<b>", "POD_NAME=a\nb", "POD_UID=\x1b[2J", "CONTAINER_NAME=main\u2028"))
	if strings.ContainsAny(odd.PodNamespace+odd.PodName+odd.PodUID+odd.Container, "<\n\x1b\u2028") {
		t.Errorf("the record has what cannot be a name: %+v", odd)
	}
}

func ofPod(p metadata.Process) metadata.Process {
	return metadata.Process{PodNamespace: p.PodNamespace, PodName: p.PodName, PodUID: p.PodUID, Container: p.Container}
}

// identity compares the process identity in a driver's record with /proc, for these environment variables.
func (s *scene) identity(c *client, env ...string) metadata.Process {
	d := c.start(s.t, env...)
	d.must(s.opening())
	l := d.acquire("identity", want{try: true})
	r := s.record(l.name)
	system := holderproc.System()
	stat, running := holderproc.ParseStat(system.Read(fmt.Sprintf("/proc/%d/stat", r.PID)))
	if !running {
		s.t.Errorf("no process has the pid of the record, %d", r.PID)
	}
	l.mustRelease()
	d.kill()
	if r.Process == nil {
		return metadata.Process{}
	}
	if boot := strings.TrimSpace(system.Read("/proc/sys/kernel/random/boot_id")); r.Process.BootID != "" &&
		r.Process.BootID != boot {
		s.t.Errorf("boot_id is %q, the machine's is %q", r.Process.BootID, boot)
	}
	if r.Process.Start != 0 && r.Process.Start != stat.Start {
		s.t.Errorf("process_start is %d, process %d began at %d", r.Process.Start, r.PID, stat.Start)
	}
	if inode, _ := holderproc.ParseNamespace(system.Link("/proc/self/ns/pid")); r.Process.PIDNamespace != 0 &&
		r.Process.PIDNamespace != inode {
		s.t.Errorf("pid_namespace is %d, want %d", r.Process.PIDNamespace, inode)
	}
	return *r.Process
}

var deadlineChecks = []check{
	{name: "abandoned and unlocked", rule: "protocol.md#the-idea", needs: "queue", orders: true,
		wants: "the lock of a killed holder alerts, is unlocked, and the next waiter gets it", pair: abandoned},
	{name: "alive", rule: "protocol.md#transactions",
		wants: "a holder of a short lock keeps it by alive, and loses it in time when it stops", alone: keptAlive},
	{name: "heartbeat", rule: "protocol.md#transactions", needs: "heartbeat",
		wants: "a heartbeat keeps the lock while the process lives, and no longer", alone: heartbeat},
	{name: "longer by alive", rule: "protocol.md#transactions", needs: "durations", short: true,
		wants: "alive can ask for another time", alone: longer},
}

func (s *scene) unlocker() (addr string) {
	addr = proctest.FreeAddr(s.t)
	proctest.Start(s.t, programs.Command(s.t, "unlocker", "--policy=auto-unlock", "--sweep.min-warning=1500ms",
		"--sweep.clock-skew=500ms", "--etcd.endpoints="+strings.Join(s.target, ","),
		"--locks.prefix="+s.layout.Prefix(), "--web.listen-address="+addr, "--web.shutdown-delay=0s",
		"--metrics.lock-series=all"))
	proctest.Answers(s.t, "http://"+addr+"/readyz", 200)
	return addr
}

func (s *scene) shows(addr, sample string, want float64) {
	s.t.Helper()
	eventually(s.t, sample, func() error {
		got, err := proctest.Metric(addr, sample)
		if err == nil && got != want {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}

// abandoned kills a holder driven by a while b waits for its lock.
func abandoned(t *testing.T, s *scene, a, b *client) {
	addr := s.unlocker()
	dead, next := s.open(a), s.open(b)
	l := dead.acquire("night/import", want{try: true, alert: 3, unlock: 15, purpose: "import of the night"})
	wait := s.queues(next, l.name, want{}, 1)
	dead.kill()
	s.shows(addr, "unlocker_alerting_locks_total", 1)
	over := s.record(l.name).AutoUnlockAt
	got := wait.granted()
	if got.at.Before(over) {
		t.Errorf("the lock was given on %v before its deadline", over.Sub(got.at))
	}
	got.comesAfter(l)
	ending := s.keys(s.layout.History(l.uuid))
	if len(ending) != 1 {
		t.Errorf("the ending of the hold is not written down: %q", ending)
	}
	s.ends(got)
}

// keptAlive extends a lock of 12 s for 30 s, then stops. Calls may take seconds on a busy machine.
func keptAlive(t *testing.T, s *scene, c *client) {
	s.unlocker()
	l := s.open(c).acquire("alive", want{try: true, alert: 6, unlock: 12})
	end := time.Now().Add(30 * time.Second)
	for i := 1; time.Now().Before(end); i++ {
		next := time.Now().Add(2 * time.Second)
		l.mustAlive(fmt.Sprintf("step %d", i))
		time.Sleep(time.Until(next))
	}
	l.lostNothing()
	l.lostAs("deadline")
	s.free(l.name)
	l.refusesAll()
}

func heartbeat(t *testing.T, s *scene, c *client) {
	s.unlocker()
	d := s.open(c)
	l := d.acquire("heartbeat", want{try: true, alert: 8, unlock: 12, heartbeat: true})
	first := s.record(l.name)
	if until := first.HeartbeatUntil.Sub(first.LockedAt); until < time.Minute || until > time.Hour {
		t.Errorf("heartbeat_until is %v after locked_at, and an hour is the maximum", until)
	}
	etcdtest.Eventually(t, "a heartbeat", func() bool { return s.record(l.name).Alive != nil })
	const beside = "4 of 9, says a process beside it"
	alive := metadata.FormatTime(time.Now()) + " " + beside
	s.put(s.layout.Field(l.name, lockrecord.FieldAlive), alive)
	end := first.AutoUnlockAt.Add(12 * time.Second)
	time.Sleep(time.Until(end))
	l.lostNothing()
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

func longer(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("longer", want{try: true})
	before := time.Now()
	l.d.must(request{"do": "alive", "lock": l.number, "progress": "on", "alert_after": 600.0,
		"auto_unlock_after": 900.0})
	r := s.record(l.name)
	alert, unlock := r.AlertAt.Sub(before).Seconds(), r.AutoUnlockAt.Sub(before).Seconds()
	if late := limit.Seconds(); alert < 599 || alert > 600+late || unlock < 899 || unlock > 900+late {
		t.Errorf("the deadlines are in %v s and %v s, want 600 and 900", alert, unlock)
	}
	s.ends(l)
}
