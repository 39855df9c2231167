//go:build conformance

package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// basicChecks are about taking a lock, keeping it and giving it back.
func basicChecks() []check {
	return []check{
		{name: "take and give back", rule: "protocol.md#transactions", needs: []string{"basic"}, short: true,
			wants: "a lock that is held has a readable record without lease, and nothing is left of a released one",
			alone: takeAndGiveBack},
		{name: "held by another", rule: "protocol.md#transactions", needs: []string{"basic"}, short: true, orders: true,
			wants: "a refusal says who holds the lock, and how many wait for it", pair: heldByAnother},
		{name: "which process holds it", rule: "protocol/witnesses.md#dead-holders",
			needs: []string{"basic"}, short: true,
			wants: "what a record says of the holder's process and pod is true", alone: whichProcess},
	}
}

func takeAndGiveBack(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	before := time.Now()
	l := d.acquire("billing/invoice-run", want{try: true, purpose: "invoices of August",
		attributes: map[string]any{"rows": 7, "dry": true, "ticket": "OPS-1"}})
	r := s.record(l.name)
	if r.Malformed() || len(r.Problems) > 0 {
		t.Errorf("the record has problems: %v", r.Problems)
	}
	if r.UUID != l.uuid || r.Token != l.token {
		t.Errorf("the record is of %s with token %d, the driver said %s and %d", r.UUID, r.Token, l.uuid, l.token)
	}
	if r.Owner != "conformance" || r.Purpose != "invoices of August" || r.Hostname == "" || r.PID == 0 ||
		r.Client == "" {
		t.Errorf("the record does not say who holds it: %+v", r.Record)
	}
	if want := map[string]any{"rows": "7", "dry": "true", "ticket": "OPS-1"}; !sameText(r.Attributes, want) {
		t.Errorf("the attributes are %v, want %v", r.Attributes, want)
	}
	if r.LockedAt.Before(before.Add(-time.Second)) || r.LockedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("locked_at is %v, and it is %v", r.LockedAt, time.Now())
	}
	if alert, unlock := r.AlertAt.Sub(r.LockedAt), r.AutoUnlockAt.Sub(r.LockedAt); alert.Round(time.Second) !=
		time.Minute || unlock.Round(time.Second) != 2*time.Minute {
		t.Errorf("the deadlines are %v and %v after locked_at, want 1m and 2m", alert, unlock)
	}
	if got := l.check(); got.Lost != nil || got.Asked != nil {
		t.Errorf("a fresh lock: %s", got.line)
	}
	if a := l.alive("3 of 9"); a.Error != "" {
		t.Errorf("alive: %s", a.line)
	}
	after := s.record(l.name)
	if progress(after) != "3 of 9" || after.AutoUnlockAt.Before(r.AutoUnlockAt) || after.Token != l.token {
		t.Errorf("after alive the record is %+v, before it was %+v", after.Record, r.Record)
	}
	l.mustRelease()
	s.free(l.name)
	if e := l.had("lost"); e != nil {
		t.Errorf("a release is no loss: %s", e.line)
	}
	if got := l.check(); got.Lost != nil {
		t.Errorf("a release is no loss: %s", got.line)
	}
	again := d.acquire(l.name, want{try: true})
	if again.uuid == l.uuid || again.token <= l.token {
		t.Errorf("the second hold is %s with token %d, the first was %s with %d", again.uuid, again.token, l.uuid,
			l.token)
	}
	again.mustRelease()
}

// sameText reports whether attributes have the same names and, as text, values.
func sameText(got, want map[string]any) bool {
	if len(got) != len(want) {
		return false
	}
	for name := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(want[name]) {
			return false
		}
	}
	return true
}

func heldByAnother(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
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
	if got := l.alive("on"); got.Error != "" {
		t.Errorf("alive after the refusal: %s", got.line)
	}
	if a.claims([]string{"queue"}) {
		l = heldByWaiting(s, l, two)
	}
	l.mustRelease()
	next := two.acquire(l.name, want{try: true})
	if next.token <= l.token {
		t.Errorf("token %d came after %d", next.token, l.token)
	}
	next.mustRelease()
	s.free(l.name)
}

// heldByWaiting has the holder's own driver wait for the lock and get it, and asks another meanwhile how many wait:
// some keep their ticket while they hold the lock.
func heldByWaiting(s *scene, l *lock, other *driver) *lock {
	s.t.Helper()
	counts := func(about string, want int) {
		s.t.Helper()
		if a := other.try(l.name); a.Error != "held" || a.Waiting != nil && *a.Waiting != want {
			s.t.Errorf("%s, %s was told %s, want held, waiting %d or not counted", about, other.client.name, a.line,
				want)
		}
	}
	wait := l.d.begin(l.name, want{})
	s.queued(l.name, 1)
	counts("while one waits", 1)
	l.mustRelease()
	next := wait.granted()
	counts("when the waiter has the lock", 0)
	return next
}

// whichProcess wants members that may be left out to be true if they are there: a wrong one proves the end of a process
// that lives.
func whichProcess(t *testing.T, w *world, c *client) {
	s := w.scene(t)
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

// ofPod is what identifies the pod.
func ofPod(p metadata.Process) metadata.Process {
	return metadata.Process{PodNamespace: p.PodNamespace, PodName: p.PodName, PodUID: p.PodUID, Container: p.Container}
}

// identity is what the record of a driver with these variables says of its process, compared with what /proc says.
func (s *scene) identity(c *client, env ...string) metadata.Process {
	s.t.Helper()
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
