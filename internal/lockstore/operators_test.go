package lockstore_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// marks are the operator's actions that do not end a hold, with the keys that they write.
var marks = map[protocol.Verb]func(r *metadata.Record) bool{
	protocol.VerbAsk:         func(r *metadata.Record) bool { return r.FinishRequest != nil },
	protocol.VerbExtend:      func(r *metadata.Record) bool { return r.MoreTime != nil },
	protocol.VerbAcknowledge: func(r *metadata.Record) bool { return r.Acknowledgement != nil },
}

func wanted(what protocol.Verb, r *metadata.Record) protocol.Action {
	a := action(r)
	a.Verb = what
	a.Reason = "the deploy waits"
	if what != protocol.VerbAsk && what != protocol.VerbForceUnlock {
		a.Seconds = 1800
	}
	return a
}

func TestAskHolder(t *testing.T) {
	w := parallel(t)
	r := w.hold("a/b", uuid(1))
	w.alive(r, at.Add(time.Hour)) // the person saw it before
	a := wanted(protocol.VerbAsk, r)
	w.did(r, a)
	want := metadata.FinishRequest{UUID: r.UUID, Token: r.Token, By: "ann", Source: "cli", At: a.At, Reason: a.Reason}
	now := w.record("a/b")
	want.Revision = now.Revision
	if now.FinishRequest == nil || *now.FinishRequest != want || now.UUID != r.UUID ||
		!now.AutoUnlockAt.Equal(at.Add(time.Hour)) {
		t.Errorf("the record is %+v, asked %+v", now, now.FinishRequest)
	}
	w.audited(a)
}

func TestExtendMovesBothDeadlines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now                   time.Time
		alertAt, autoUnlockAt time.Time // wanted
	}{
		"of a hold whose time runs": {at, at.Add(31 * time.Minute), at.Add(32 * time.Minute)},
		"of one that alerts": {at.Add(90 * time.Second), at.Add(31*time.Minute + 30*time.Second),
			at.Add(32 * time.Minute)},
		"of one whose time is over":       {at.Add(time.Hour), at.Add(90 * time.Minute), at.Add(90 * time.Minute)},
		"between two seconds: rounded up": {at.Add(time.Hour - 1), at.Add(90 * time.Minute), at.Add(90 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			w := parallel(t)
			r := w.hold("a", uuid(1))
			a := wanted(protocol.VerbExtend, r)
			a.At = metadata.Time{Time: c.now}
			w.did(r, a)
			now := w.record("a")
			if !now.AlertAt.Equal(c.alertAt) || !now.AutoUnlockAt.Equal(c.autoUnlockAt) {
				t.Errorf("alert at %v, auto-unlock at %v; want %v and %v", now.AlertAt, now.AutoUnlockAt, c.alertAt,
					c.autoUnlockAt)
			}
			want := metadata.MoreTime{UUID: r.UUID, Token: r.Token, By: "ann", Source: "cli", At: a.At,
				Reason: a.Reason, AutoUnlockAt: metadata.Time{Time: r.AutoUnlockAt}, Seconds: 1800}
			if now.MoreTime == nil || *now.MoreTime != want {
				t.Errorf("the record says %+v, want %+v", now.MoreTime, want)
			}
		})
	}
}

func TestOperationsOnAnEndedHold(t *testing.T) {
	t.Parallel()
	for _, what := range append(slices.Collect(maps.Keys(marks)), protocol.VerbForceUnlock) {
		t.Run(string(what), func(t *testing.T) {
			w := parallel(t)
			r := w.hold("a", uuid(1))
			refused := func(says string, token int64) {
				t.Helper()
				err := w.do(r, wanted(what, r))
				var changed *lockstore.ChangedError
				if !errors.As(err, &changed) || !errors.Is(err, metadata.ErrChanged) ||
					changed.Current.Token != token ||
					!strings.Contains(err.Error(), says) {
					t.Errorf("got %v, want that %s", err, says)
				}
			}
			w.release(r)
			refused("nobody holds", 0)
			leases := len(w.leases()) // that of the audit trail is there from now on
			next := w.hold("a", uuid(2))
			refused(`"billing"`, next.Token)
			if n := len(w.leases()); n != leases { // one of an acknowledgement would stay for a day
				t.Errorf("%d leases, before %d", n, leases)
			}
			if left := w.keys(w.l.Prefix()); len(left) != 4 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestOperationsWithALostAnswer(t *testing.T) {
	t.Parallel()
	unknown := func(err error) bool { return errors.Is(err, metadata.ErrOutcomeUnknown) }
	changed := func(err error) bool { return errors.Is(err, metadata.ErrChanged) }
	fine := func(err error) bool { return err == nil }
	for _, what := range append(slices.Collect(maps.Keys(marks)), protocol.VerbForceUnlock, protocol.VerbWithdraw,
		protocol.VerbEndDelay) {
		for name, c := range map[string]struct {
			committed, late bool
			check           func(error) bool
		}{
			"though it was done":                         {true, false, fine},
			"and which was not done":                     {false, false, unknown},
			"while another came between":                 {false, true, changed},
			"though it was done, and another came since": {true, true, fine},
		} {
			t.Run(string(what)+" "+name, func(t *testing.T) {
				line, w := wired(t)
				act, another := w.operation(what)
				sent := 0
				line.lose(c.committed, func() {
					if sent++; c.late {
						line.onTxn(nil)
						another()
					}
				})
				if err := act(); !c.check(err) || sent != 1 {
					t.Errorf("error %v, sent %d times", err, sent)
				}
			})
		}
	}
}

// operation returns an operator's action on lock "a", and what another does that keeps it from being done.
func (w world) operation(what protocol.Verb) (act func() error, another func()) {
	r := w.hold("a", uuid(1))
	a := wanted(what, r)
	switch what {
	case protocol.VerbEndDelay:
		w.remove(delayed(r, time.Minute))
		d := w.delay("a")
		return func() error { return w.endDelay(&d, a) }, func() { w.put(w.l.Delay("a"), "{}") }
	case protocol.VerbWithdraw:
		r = w.acknowledged(r, "ann")
		a = withdrawal(r)
		return func() error { return w.do(r, a) }, func() { w.acknowledged(r, "bob") }
	}
	return func() error { return w.do(r, a) }, func() {
		w.release(r)
		w.hold("a", uuid(2))
	}
}

// Once the deadline has moved, the compare can no longer succeed, so no request can still take effect.
func TestImpossibleLateExtensionIsNotInDoubt(t *testing.T) {
	line, w := wired(t)
	r := w.hold("a", uuid(1))
	line.once(func(func() error) error {
		w.alive(r, at.Add(time.Hour))
		return errLost
	})
	w.moved("the action", w.do(r, wanted(protocol.VerbExtend, r)))
}

// A full etcd accepts only deletions. What it cannot write of a force unlock is in the log.
func TestOperationsOnAFullEtcd(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.Quota(4<<20))
	var log bytes.Buffer
	w := on(t, s.Client(t), lockstore.WithLog(zerolog.New(&log)))
	r := w.hold("a", uuid(1000))
	w.endings(5)
	_, _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"})
	proctest.Must(t, err)
	s.Fill(t, "/fill/")
	if _, _, err := w.Announce(t.Context(), metadata.Presence{ID: "u1"}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("announce: %v", err)
	}
	for what, left := range marks {
		if err := w.do(r, wanted(what, r)); !errors.Is(err, lockstore.ErrNoSpace) || left(w.record("a")) {
			t.Errorf("%s: %v, record %+v", what, err, w.record("a"))
		}
	}
	w.did(r, action(r))
	if left := w.keys(w.l.Record("a")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, want := range []string{`"actor":"ann"`, `"lock":"a"`, "the pod is gone for good", "out of space"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
	if errs := w.AutoUnlock(t.Context(), []lockrecord.Removal{removal(r)}); errs[0] == nil ||
		errors.Is(errs[0], metadata.ErrChanged) {
		t.Errorf("auto-unlock: %v", errs)
	}
	w.trims(1, 4)
}

// An etcd that runs out of space during a transaction commits it anyway, but answers that it did not.
func TestOperationsAppliedByAFullEtcd(t *testing.T) {
	t.Parallel()
	for what, left := range marks {
		t.Run(string(what), func(t *testing.T) {
			line, w := wired(t)
			r := w.hold("a", uuid(1))
			line.fill(func() {})
			if err := w.do(r, wanted(what, r)); err != nil || !left(w.record("a")) {
				t.Errorf("the error of a completed action is %v", err)
			}
		})
	}
}

func TestRefusedOperations(t *testing.T) {
	t.Parallel()
	type change = func(r *metadata.Record, a *protocol.Action)
	reason := func(reason string) change {
		return func(_ *metadata.Record, a *protocol.Action) { a.Reason = reason }
	}
	seconds := func(n int64) change {
		return func(_ *metadata.Record, a *protocol.Action) {
			if a.Verb != protocol.VerbAsk {
				a.Seconds = n
			}
		}
	}
	record := func(f func(r *metadata.Record)) change {
		return func(r *metadata.Record, _ *protocol.Action) { f(r) }
	}
	for name, c := range map[string]struct {
		change                     change
		ask, extends, acknowledges bool // is refused
	}{
		"no reason":             {reason(" "), true, true, false},
		"a reason of two lines": {reason("a\nb"), true, true, true},
		"a long reason":         {reason(strings.Repeat("x", 1025)), true, true, true},
		"a reason long in JSON": {reason(strings.Repeat("<", 500)), true, true, true},
		"a reason not in UTF-8": {reason("a\xffb"), true, true, true},
		"a misplaced record":    {record(func(r *metadata.Record) { r.Misplaced = true }), true, true, true},
		"no uuid":               {record(func(r *metadata.Record) { r.UUID = "" }), true, true, true},
		"nobody's record":       {record(func(r *metadata.Record) { r.Token = 0 }), true, true, true},
		"no alert deadline":     {record(func(r *metadata.Record) { r.AlertAt = time.Time{} }), false, true, false},
		"no auto-unlock": {record(func(r *metadata.Record) { r.AutoUnlockAt = time.Time{} }), false, true,
			false},
		"a dead holder": {record(func(r *metadata.Record) {
			r.Death = &metadata.Statement{Cause: metadata.CauseProcessEnded, Revision: r.Revision + 1}
		}), true, true, false},
		"no time":              {seconds(0), false, true, true},
		"less than no time":    {seconds(-60), false, true, true},
		"less than a minute":   {seconds(59), false, false, true},
		"a day and a second":   {seconds(86401), false, false, true},
		"a day, which is fine": {seconds(86400), false, false, false},
		"more than a week":     {seconds(7*86400 + 1), false, true, true},
		"after the year 2286": {record(func(r *metadata.Record) {
			r.AutoUnlockAt = time.Unix(9_999_999_000, 0)
		}), false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := parallel(t)
			for what, refused := range map[protocol.Verb]bool{protocol.VerbAsk: c.ask,
				protocol.VerbExtend: c.extends, protocol.VerbAcknowledge: c.acknowledges} {
				r := w.hold(string(what), uuid(1))
				a := wanted(what, r)
				c.change(r, &a)
				err := w.do(r, a)
				var no *protocol.RefusedError
				if refused && (!errors.As(err, &no) || marks[what](w.record(string(what)))) || !refused && err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
