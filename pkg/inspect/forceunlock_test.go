package inspect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

const (
	by     = "ann"
	reason = "node-7 is dead"
)

func TestForceUnlockEndsTheHoldWithActorAndReason(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		theirs := s.Hold("a", mutex.LockDelay(time.Minute))
		seen := get(t, st, "a").Holder()
		proctest.Must(t, theirs.Alive(t.Context(), "it extends its hold")) // which is no other hold
		proctest.Must(t, st.ForceUnlock(t.Context(), &seen.Record, by, reason))
		<-theirs.Lost()
		lost, isLost := errors.AsType[*mutex.LostError](context.Cause(theirs.Context()))
		if !isLost || !lost.Certain || lost.Ending != nil && // it is nil on a machine too busy to read it in time
			(lost.Ending.By != by || lost.Ending.Reason != reason || lost.Ending.Cause != metadata.EndingForced) {
			t.Errorf("the holder learned %+v", lost)
		}
		if now := get(t, st, "a"); now.Holder() != nil || len(now.Delays) != 1 || now.Delays[0].UUID != theirs.UUID() {
			t.Errorf("it left %+v", now)
		}
		audit, err := lockstore.New(s.Etcd(), protocol.DefaultLayout()).ReadAudit(t.Context(), 10)
		if err != nil || len(audit) != 1 {
			t.Fatalf("the audit trail is %+v, %v", audit, err)
		}
		a := audit[0]
		if a.Actor != by || a.Reason != reason || a.Source != protocol.SourceProgram || a.Lock != "a" ||
			a.UUID != theirs.UUID() || a.Token != theirs.Token() || a.Verb != protocol.VerbForceUnlock ||
			a.Result != "success" || !strings.Contains(a.Holder, "stranger") || a.ID == "" || a.At.IsZero() {
			t.Errorf("the audit trail has %+v", a)
		}
	})
}

func TestForceUnlockSparesAnotherHold(t *testing.T) {
	onBoth(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		s.Hold("a").Unlock()
		first := s.Hold("a")
		seen := get(t, st, "a").Holder()
		proctest.Must(t, first.Unlock())
		refused := func() *inspect.ChangedError {
			t.Helper()
			err := st.ForceUnlock(t.Context(), &seen.Record, by, reason)
			changed, isChanged := errors.AsType[*inspect.ChangedError](err)
			if !isChanged || !errors.Is(err, metadata.ErrChanged) || changed.Name != "a" {
				t.Fatalf("the error is %v", err)
			}
			return changed
		}
		if changed := refused(); changed.Holder != nil || !strings.Contains(changed.Error(), "is over") {
			t.Errorf("of a free lock: %v", changed)
		}
		s.Hold("a", mutex.Owner("next"))
		if changed := refused(); changed.Holder == nil || changed.Holder.Owner != "next" ||
			!strings.Contains(changed.Error(), "next") {
			t.Errorf("of another's lock: %v", changed)
		}
		s.AssertHeld("a")
	})
}

func TestForceUnlockRefusesBadInput(t *testing.T) {
	inMemory(t, func(t *testing.T, s *locktest.Server, st *inspect.Inspector) {
		s.Hold("a")
		r := &get(t, st, "a").Holder().Record
		misplaced := *r
		misplaced.Misplaced = true
		for name, c := range map[string]struct {
			r          *metadata.Record
			by, reason string
		}{
			"no record":          {nil, by, reason},
			"an invented record": {&metadata.Record{Name: "a"}, by, reason},
			"a misplaced record": {&misplaced, by, reason},
			"nobody":             {r, " ", reason},
			"two operators":      {r, "ann\nbob", reason},
			"no reason":          {r, by, ""},
			"a long reason":      {r, by, strings.Repeat("x", metadata.MaxTextBytes+1)},
		} {
			if err := st.ForceUnlock(t.Context(), c.r, c.by, c.reason); err == nil ||
				errors.Is(err, metadata.ErrChanged) || !strings.HasPrefix(err.Error(), "inspect: force unlock: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.AssertHeld("a")
	})
}
