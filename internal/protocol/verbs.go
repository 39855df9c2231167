package protocol

import (
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Verb is an operator's action on another's hold, as the audit trail names it. A newer version may have others.
type Verb string

// The actions of operators on another's hold.
const (
	ActionForceUnlock Verb = "force-unlock" // end it
	ActionAsk         Verb = "ask"          // ask its holder to finish
	ActionExtend      Verb = "extend"       // move its deadlines forward
	ActionEndDelay    Verb = "end-delay"    // end the lock delay after it
	ActionAcknowledge Verb = "acknowledge"  // say that an operator is looking at it
	// ActionWithdraw ends an acknowledgement before its time.
	ActionWithdraw Verb = "withdraw-acknowledgement"
)

// Facts are the properties of a verb that hold everywhere. Its wording is defined where it is shown.
type Facts struct {
	Right  string // the permission that it needs
	LetsIn bool   // lets another client in: the lock's name is typed, and the reason is long
	Why    string // the name of the text that says why: reason or note
	MinWhy int    // characters that a person has to type there
	Undo   Verb   // the verb that undoes it; empty if there is none

	possible func(r *metadata.Record, a Action) error // nil: always
	// Time returns an error, a sentence, for a duration that the verb cannot last or give; nil if the verb has no
	// duration.
	Time func(time.Duration) error
	// Mark is what the verb leaves in the record; zero = nothing.
	Mark Mark
}

// Mark is a document that a verb writes into the record of a hold, replacing an earlier one.
type Mark struct {
	Field  string
	Leased bool // it ends after the action's Seconds, or with the hold
	// Document returns the document about the hold in r.
	Document func(r *metadata.Record, a Action) string
	// By returns who left the mark in the record.
	By func(r *metadata.Record) (who string, left bool)
}

// How many characters a person has to type: more for verbs that take something away.
const (
	minReason     = 1
	minLongReason = 10
)

// Facts returns the properties of the verb; none for a verb that this version does not know.
func (v Verb) Facts() Facts {
	switch v {
	case ActionForceUnlock:
		return Facts{Right: "unlock", LetsIn: true, Why: "reason", MinWhy: minLongReason}
	case ActionEndDelay: // has the effect of a force unlock: the former holder may be at work
		return Facts{Right: "unlock", LetsIn: true, Why: "reason", MinWhy: minLongReason}
	case ActionAsk:
		return Facts{Right: "ask", Why: "reason", MinWhy: minReason,
			possible: func(r *metadata.Record, _ Action) error { return CheckAsk(r) },
			Mark:     Mark{Field: metadata.FieldAsked, Document: requestOf, By: askedBy}}
	case ActionExtend:
		return Facts{Right: "extend", Why: "reason", MinWhy: minReason, Time: CheckMoreTimeOf,
			possible: func(r *metadata.Record, a Action) error { return CheckMoreTime(r, a.Length(), a.At.Time) },
			Mark:     Mark{Field: metadata.FieldExtended, Document: extensionOf, By: extendedBy}}
	case ActionAcknowledge:
		return Facts{Right: "acknowledge", Why: "note", Undo: ActionWithdraw, Time: CheckAcknowledgeFor,
			possible: func(r *metadata.Record, _ Action) error { return CheckAcknowledge(r) },
			Mark: Mark{Field: metadata.FieldAcknowledged, Leased: true, Document: acknowledgementOf,
				By: acknowledgedBy}}
	case ActionWithdraw:
		return Facts{Right: "acknowledge", Why: "note",
			possible: func(r *metadata.Record, _ Action) error { return CheckWithdraw(r) }}
	}
	return Facts{}
}

// Known reports whether this version knows the verb.
func (v Verb) Known() bool { return v.Facts().Right != "" }

// Possible returns an error, a sentence, if the verb makes no sense for the hold in r, whatever the action's text.
func (v Verb) Possible(r *metadata.Record, a Action) error {
	if possible := v.Facts().possible; possible != nil {
		return possible(r, a)
	}
	return nil
}

// PossibleNow is [Verb.Possible] before a duration is chosen.
func (v Verb) PossibleNow(r *metadata.Record, now time.Time) error {
	return v.Possible(r, Action{At: metadata.Time{Time: now}, Seconds: 1})
}

// Check returns an error, a sentence, if the action makes no sense for the hold in r.
func (v Verb) Check(r *metadata.Record, a Action) error {
	if err := v.Possible(r, a); err != nil {
		return err
	}
	f := v.Facts()
	if f.Time != nil {
		if err := f.Time(a.Length()); err != nil {
			return err
		}
	}
	if f.MinWhy == 0 {
		return CheckNote(a.Reason)
	}
	return CheckReason(a.Reason)
}

// Length returns the action's Seconds as a duration.
func (a *Action) Length() time.Duration { return time.Duration(a.Seconds) * time.Second }

func requestOf(r *metadata.Record, a Action) string {
	return Marshal(metadata.Request{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
		Reason: a.Reason})
}

func extensionOf(r *metadata.Record, a Action) string {
	return Marshal(metadata.Extension{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
		Reason: a.Reason, AutoUnlockAt: metadata.Time{Time: r.AutoUnlockAt}, Seconds: a.Seconds})
}

func acknowledgementOf(r *metadata.Record, a Action) string {
	return Marshal(metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: a.Actor, Source: a.Source, At: a.At,
		Until: metadata.Time{Time: a.At.Add(a.Length())}, Note: a.Reason})
}

func askedBy(r *metadata.Record) (string, bool) {
	if r.Asked == nil {
		return "", false
	}
	return r.Asked.By, true
}

func extendedBy(r *metadata.Record) (string, bool) {
	if r.Extended == nil {
		return "", false
	}
	return r.Extended.By, true
}

func acknowledgedBy(r *metadata.Record) (string, bool) {
	if r.Acknowledged == nil {
		return "", false
	}
	return r.Acknowledged.By, true
}

// Subject is what an operator saw: either exactly that is changed, or nothing.
type Subject struct {
	Hold  *metadata.Record
	Delay *metadata.Delay // for [ActionEndDelay], instead of a hold
	// Follows is the lock delay that follows a hold that [ActionForceUnlock] ends. It is rounded up to whole seconds.
	Follows time.Duration
}

// Outcome is what an action wrote besides its mark, or would have written.
type Outcome struct {
	Ending  metadata.Ending // of [ActionForceUnlock]
	Follows time.Duration   // the lock delay that follows
}

// RefusedError means that an action makes no sense. Nothing was done.
type RefusedError struct{ Why string } // a sentence

// Error returns the reason as a sentence.
func (e *RefusedError) Error() string { return e.Why }

// sourceWaiter is the source of a request by a client that waits for the lock.
const sourceWaiter = "waiter"

// maxShown is how many bytes of outside text a sentence has.
const maxShown = 240

// AskedWords returns the request in a record as one sentence: `asked by ann 2m ago: "the deploy waits"; no answer yet`.
// Text from outside is made visible. It is empty if the holder was not asked.
func AskedWords(r *metadata.Record, now time.Time) string {
	switch words := RequestWords(r.Asked, now); {
	case words == "":
		return ""
	case r.Answered():
		return words + "; alive since"
	default:
		return words + "; no answer yet"
	}
}

// RequestWords is [AskedWords] without the answer, for a hold that is over. q may be nil.
func RequestWords(q *metadata.Request, now time.Time) string {
	if q == nil {
		return ""
	}
	by := Person(q.By)
	if q.Source == sourceWaiter {
		by += ", who waits,"
	}
	return "asked by " + by + since(q.At.Time, now) + quoted(q.Reason)
}

// ExtendedWords returns the extension in a record as one sentence: `ann gave 30m more 2m ago: "the disk is slow"`. Text
// from outside is made visible. It is empty if the holder was not given more time.
func ExtendedWords(r *metadata.Record, now time.Time) string { return ExtensionWords(r.Extended, now) }

// ExtensionWords is [ExtendedWords] for an extension, which may be nil.
func ExtensionWords(e *metadata.Extension, now time.Time) string {
	if e == nil {
		return ""
	}
	amount := "more time"
	if d := e.Given(); d > 0 {
		amount = text.Duration(d) + " more"
	}
	return Person(e.By) + " gave " + amount + since(e.At.Time, now) + quoted(e.Reason)
}

// AcknowledgedWords returns who is looking at a hold as one sentence: `acknowledged by ann 5m ago, for another 25m:
// "the disk is full"`. Text from outside is made visible. It is empty if nobody is. For a hold that is over, see
// [LookedAtWords].
func AcknowledgedWords(r *metadata.Record, now time.Time) string {
	a := r.AcknowledgedAt(now)
	if a == nil {
		return ""
	}
	return "acknowledged by " + Person(a.By) + since(a.At.Time, now) + ", for another " +
		text.Countdown(a.Until.Sub(now)) + quoted(a.Note)
}

// LookedAtWords returns who was looking at a hold when it ended, as one sentence. a is nil if nobody was.
func LookedAtWords(a *metadata.Acknowledgement, now time.Time) string {
	if a == nil {
		return ""
	}
	return "acknowledged by " + Person(a.By) + since(a.At.Time, now) + quoted(a.Note)
}

// Person returns the name of an operator or owner in visible characters.
func Person(name string) string {
	if name == "" {
		return "somebody"
	}
	return text.Visible(text.Clip(name, maxShown))
}

func since(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " " + text.Duration(now.Sub(at)) + " ago"
}

func quoted(reason string) string {
	if reason == "" {
		return ""
	}
	return `: "` + text.Visible(text.Clip(reason, maxShown)) + `"`
}
