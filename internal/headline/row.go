package headline

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// StatusText describes in a few words what is wrong with a hold in a class, or how long it has been held.
func StatusText(r *locks.Row, class locks.Class) (s sentence) {
	switch class {
	case locks.ClassDeadlock:
		return s.Say("deadlock")
	case locks.ClassSilent:
		return s.Since(r.LateSince()).Say(pick(diagnosis.IsSuspected(r.Record), " late, may be dead", " late, silent"))
	case locks.ClassLate:
		return s.Since(r.LateSince()).
			Say(pick(diagnosis.ReportsProgress(r.Record), " late, reports", " late, no progress"))
	case locks.ClassMalformed:
		return s.Say(cmp.Or(strings.TrimPrefix(r.Inconsistent, "has "), unreadableText(r.Record)))
	}
	switch {
	case r.Leased != nil:
		return s.Say(pick(r.LockedAt.IsZero(), "leased over ", "leased ")).Since(r.SeenAt)
	case r.ProvenDead():
		return endedText(r.Death)
	case r.State == metadata.StateExpired:
		return s.Say("expired ").Since(r.ExpiresAt).Say(" ago")
	case r.LockedAt.IsZero():
		return s.Say("held")
	}
	return s.Say("held ").Since(r.LockedAt)
}

// unreadableText describes what is wrong with a malformed record.
func unreadableText(r *metadata.Record) string {
	switch {
	case r.Misplaced:
		return "misplaced keys"
	case r.Token == 0:
		return "no holder"
	case len(r.Problems) == 0:
		return "malformed"
	}
	switch field := problem(r, lockrecord.FieldAutoUnlockAt).Field; field {
	case lockrecord.FieldAutoUnlockAt:
		return "unreadable deadline"
	case lockrecord.FieldAlertAt:
		return "unreadable alert"
	default:
		return "unreadable " + text.Visible(text.Clip(field, maxFieldShown))
	}
}

// maxFieldShown is how many bytes of the name of a field a row shows.
const maxFieldShown = 20

// endedText describes how and when a holder ended: "killed (SIGKILL) 7s ago".
func endedText(s *metadata.Statement) sentence {
	how := "ended "
	switch {
	case s.Signal != "":
		how = "killed (" + text.Visible(text.Clip(s.Signal, maxFieldShown)) + ") "
	case s.ExitCode != nil:
		how = fmt.Sprintf("exited (%d) ", *s.ExitCode)
	}
	return sentence{}.Say(how).Since(protocol.EndedAt(s)).Say(" ago")
}

// NextText describes in a few words what happens to a hold if nobody acts.
func (c *Input) NextText(r *locks.Row) (s sentence) {
	l := &locks.HeldLock{Row: r, Lock: r.Name}
	never := r.DueUnlock().IsZero() || r.Misplaced || c.WhyNeverRemoved(l) != ""
	switch {
	case r.Leased != nil && r.Leased.Lease.Expires.IsZero():
		return s.Say("lease unread")
	case r.Leased != nil:
		return s.Say("ends ").Until(r.Leased.Lease.Expires).Say(" if silent")
	case alertsFirst(r, never):
		return s.Say("alert ").Until(r.DueAlert)
	case never:
		return s.Say("never")
	case r.Class == locks.ClassDead && !c.Combined.IsKnown():
		return s.Say("unlock unknown")
	case len(c.paused(l, staleness.RuleUnverified)) > 0:
		return s.Say("unlock paused")
	case r.Class == locks.ClassOverdue:
		return s.Say("unlock overdue")
	}
	s = s.Say("unlock ").Until(r.DueUnlock())
	if r.Class == locks.ClassLate || r.State == metadata.StateHeld && staleness.KeptAlive(r.Record) {
		s = s.Say(" if silent")
	}
	return s
}

// alertsFirst reports whether the next that happens to a hold by itself is its alert.
func alertsFirst(r *locks.Row, neverRemoved bool) bool {
	isQuiet := r.Display == metadata.StateHeld || r.Display == metadata.StateMalformed
	return isQuiet && !r.DueAlert.IsZero() && (neverRemoved || !r.AlertsAtUnlock())
}

// RemovalsContinue reports whether unlockers remove what is due now. While etcd is silent, that is unknown: false.
func (c *Input) RemovalsContinue() bool {
	return !c.viewIsStale() && len(diagnosis.HeldBackBy(c.Running, staleness.RuleUnverified)) == 0
}
