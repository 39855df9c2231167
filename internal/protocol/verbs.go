package protocol

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Verb is a kind of operator action on another's hold, as the audit trail names it. A newer version may have others.
type Verb string

// The kinds of operator actions.
const (
	VerbForceUnlock Verb = "force-unlock" // end it
	VerbAsk         Verb = "ask"          // ask its holder to finish
	VerbExtend      Verb = "extend"       // move its deadlines forward
	VerbEndDelay    Verb = "end-delay"    // end the lock delay after it
	VerbAcknowledge Verb = "acknowledge"  // tell others that an operator is looking at it
	// VerbWithdraw ends an acknowledgement before its time.
	VerbWithdraw Verb = "withdraw-acknowledgement"
)

// VerbInfo has the properties of a verb that page, API and command line share. Its wording is defined where it is
// shown.
type VerbInfo struct {
	Permission      string // the permission that it needs
	FreesLock       bool   // another client can get the lock: a form requires its name and a long reason
	ReasonField     string // the name of the text that gives the reason: reason or note
	MinReasonLength int    // minimum length of that text, in characters; 0 if it is optional
	Undo            Verb   // the verb that undoes it; empty if there is none

	// CheckDuration returns an error, a sentence, for a duration that is not allowed; nil if the verb has no duration.
	CheckDuration func(time.Duration) error
	// Mark is what the verb writes into the record; zero for nothing.
	Mark Mark
}

// Mark is a document that a verb writes into the record of a hold, replacing an earlier one.
type Mark struct {
	Field  string
	Leased bool // it expires after the action's Seconds, or ends with the hold
}

// Document returns the document about the hold in r; empty if there is no mark.
func (m Mark) Document(r *metadata.Record, a Action) string {
	switch m.Field {
	case lockrecord.FieldAsked:
		return Marshal(metadata.FinishRequest{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
			Reason: a.Reason})
	case lockrecord.FieldExtended:
		return Marshal(metadata.MoreTime{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
			Reason: a.Reason, AutoUnlockAt: metadata.Time{Time: r.AutoUnlockAt}, Seconds: a.Seconds})
	case lockrecord.FieldAcknowledged:
		return Marshal(metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
			Until: metadata.Time{Time: a.At.Add(a.Duration())}, Note: a.Reason})
	}
	return ""
}

// Author returns the operator whose mark is in the record, if there is one.
func (m Mark) Author(r *metadata.Record) (name string, ok bool) {
	switch {
	case m.Field == lockrecord.FieldAsked && r.FinishRequest != nil:
		return r.FinishRequest.By, true
	case m.Field == lockrecord.FieldExtended && r.MoreTime != nil:
		return r.MoreTime.By, true
	case m.Field == lockrecord.FieldAcknowledged && r.Acknowledgement != nil:
		return r.Acknowledgement.By, true
	}
	return "", false
}

// Minimum lengths of reasons, in characters: longer for verbs that free a lock.
const (
	minReasonLength     = 1
	minLongReasonLength = 10
)

// Info returns the properties of the verb; none for a verb that this version does not know.
func (v Verb) Info() VerbInfo {
	switch v {
	case VerbForceUnlock, VerbEndDelay: // both free the lock while the former holder may be at work
		return VerbInfo{Permission: "unlock", FreesLock: true, ReasonField: "reason",
			MinReasonLength: minLongReasonLength}
	case VerbAsk:
		return VerbInfo{Permission: "ask", ReasonField: "reason", MinReasonLength: minReasonLength,
			Mark: Mark{Field: lockrecord.FieldAsked}}
	case VerbExtend:
		return VerbInfo{Permission: "extend", ReasonField: "reason", MinReasonLength: minReasonLength,
			CheckDuration: checkMoreTimeDuration,
			Mark:          Mark{Field: lockrecord.FieldExtended}}
	case VerbAcknowledge:
		return VerbInfo{Permission: "acknowledge", ReasonField: "note", Undo: VerbWithdraw,
			CheckDuration: checkAcknowledgementDuration,
			Mark:          Mark{Field: lockrecord.FieldAcknowledged, Leased: true}}
	case VerbWithdraw:
		return VerbInfo{Permission: "acknowledge", ReasonField: "note"}
	}
	return VerbInfo{}
}

// IsKnown reports whether this version knows the verb.
func (v Verb) IsKnown() bool { return v.Info().Permission != "" }

// CheckHold returns an error, a sentence, if the verb cannot be applied to the hold in r. It ignores the action's
// reason.
func (v Verb) CheckHold(r *metadata.Record, a Action) error {
	switch v {
	case VerbAsk:
		return checkAsk(r)
	case VerbExtend:
		return checkMoreTime(r, a.Duration(), a.At.Time)
	case VerbAcknowledge:
		return checkIdentified(r)
	case VerbWithdraw:
		return checkWithdraw(r)
	}
	return nil
}

// CheckHoldNow is [Verb.CheckHold] before a duration is chosen.
func (v Verb) CheckHoldNow(r *metadata.Record, now time.Time) error {
	return v.CheckHold(r, Action{At: metadata.Time{Time: now}, Seconds: 1})
}

// CheckAction returns an error, a sentence, if the action cannot be applied to the hold in r: because of the hold, the
// duration or the reason.
func (v Verb) CheckAction(r *metadata.Record, a Action) error {
	if err := v.CheckHold(r, a); err != nil {
		return err
	}
	info := v.Info()
	if info.CheckDuration != nil {
		if err := info.CheckDuration(a.Duration()); err != nil {
			return err
		}
	}
	if info.MinReasonLength == 0 {
		return CheckNote(a.Reason)
	}
	return CheckReason(a.Reason)
}

// Duration returns the action's Seconds as a duration.
func (a *Action) Duration() time.Duration { return time.Duration(a.Seconds) * time.Second }

// ActionTarget is the hold or the lock delay that an operator saw and wants to change. If it has changed since, the
// action does nothing.
type ActionTarget struct {
	Hold  *metadata.Record
	Delay *metadata.LockDelay // for [VerbEndDelay], instead of a hold
	// LockDelayAfter is the length of the lock delay after a hold that [VerbForceUnlock] ends, rounded up to whole
	// seconds.
	LockDelayAfter time.Duration
	// IfUnchanged lets [VerbForceUnlock] end only a hold whose record is still as the operator saw it: a holder that
	// has extended since keeps it.
	IfUnchanged bool
}

// Outcome is what a force unlock writes, or would have written. It is zero for other actions.
type Outcome struct {
	Ending         metadata.Ending // of the hold
	LockDelayAfter time.Duration   // the lock delay that follows
}

// RefusedError means that an action cannot be applied to its target. Nothing was done.
type RefusedError struct{ Reason string } // a sentence

// Error returns the reason as a sentence.
func (e *RefusedError) Error() string { return e.Reason }

// maxShownBytes is how much of outside text a sentence shows.
const maxShownBytes = 240

// DescribeFinishRequest returns the finish request in a record as one sentence: `ann asked the holder to finish 2m ago:
// "the deploy waits"; no answer yet`. Text from outside is made visible. It is empty if there is none.
func DescribeFinishRequest(r *metadata.Record, now time.Time) string {
	switch words := describePastFinishRequest(r.FinishRequest, now); {
	case words == "":
		return ""
	case r.AliveSinceRequest():
		return words + "; alive since"
	default:
		return words + "; no answer yet"
	}
}

// describePastFinishRequest leaves out whether the holder is alive. q may be nil.
func describePastFinishRequest(q *metadata.FinishRequest, now time.Time) string {
	if q == nil {
		return ""
	}
	by := DisplayName(q.By)
	if q.Source == metadata.SourceWaiter {
		by += ", a waiter,"
	}
	return by + " asked the holder to finish" + agoText(q.At.Time, now) + quoted(q.Reason)
}

// DescribeMoreTime returns more time that an operator gave as one sentence: `ann gave 30m more 2m ago: "the disk is
// slow"`. Text from outside is made visible. It is empty if m is nil.
func DescribeMoreTime(m *metadata.MoreTime, now time.Time) string {
	if m == nil {
		return ""
	}
	amount := "more time"
	if d := m.Duration(); d > 0 {
		amount = text.Duration(d) + " more"
	}
	return DisplayName(m.By) + " gave " + amount + agoText(m.At.Time, now) + quoted(m.Reason)
}

// DescribeAcknowledgement returns the acknowledgement in a record as one sentence: `ann acknowledged it 5m ago, for
// another 25m: "the disk is full"`. Text from outside is made visible. It is empty if there is none or it is over.
func DescribeAcknowledgement(r *metadata.Record, now time.Time) string {
	a := r.ValidAcknowledgement(now)
	if a == nil {
		return ""
	}
	return DisplayName(a.By) + " acknowledged it" + agoText(a.At.Time, now) + ", for another " +
		text.Countdown(a.Until.Sub(now)) + quoted(a.Note)
}

// describePastAcknowledgement leaves out how much longer it lasts. a may be nil.
func describePastAcknowledgement(a *metadata.Acknowledgement, now time.Time) string {
	if a == nil {
		return ""
	}
	return DisplayName(a.By) + " acknowledged it" + agoText(a.At.Time, now) + quoted(a.Note)
}

// DescribePastActions describes what operators and waiters did to an ended hold. The reason of a yielded hold says
// already who asked.
func DescribePastActions(e *metadata.Ending, now time.Time) []string {
	asked := describePastFinishRequest(e.FinishRequest, now)
	if e.Cause == metadata.EndingYielded {
		asked = ""
	}
	all := []string{describePastAcknowledgement(e.Acknowledgement, now), asked, DescribeMoreTime(e.MoreTime, now)}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// DisplayName returns the name of an operator or owner in visible characters, or "somebody" if it is empty.
func DisplayName(name string) string {
	if name == "" {
		return "somebody"
	}
	return text.Visible(text.Clip(name, maxShownBytes))
}

// agoText returns how long ago a time was, as the end of a sentence: " 2m ago".
func agoText(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " " + text.Duration(now.Sub(at)) + " ago"
}

// quoted returns a reason as the end of a sentence: `: "the disk is slow"`.
func quoted(reason string) string {
	if reason == "" {
		return ""
	}
	return `: "` + text.Visible(text.Clip(reason, maxShownBytes)) + `"`
}
