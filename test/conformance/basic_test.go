//go:build conformance

package conformance

import (
	"fmt"
	"testing"
	"time"
)

// basicChecks are about taking a lock, keeping it and giving it back.
func basicChecks() []check {
	return []check{
		{name: "take and give back", rule: "transactions", needs: []string{"basic"}, short: true,
			wants: "a lock that is held has a readable record without lease, and nothing is left of a released one",
			alone: takeAndGiveBack},
		{name: "held by another", rule: "transactions", needs: []string{"basic"}, short: true, orders: true,
			wants: "a refusal says who holds the lock", pair: heldByAnother},
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
	l.mustRelease()
	next := two.acquire(l.name, want{try: true})
	if next.token <= l.token {
		t.Errorf("token %d came after %d", next.token, l.token)
	}
	next.mustRelease()
	s.free(l.name)
}
