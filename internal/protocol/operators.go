package protocol

import (
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// sourceWaiter is the source of the request of a client that waits for the lock.
const sourceWaiter = "waiter"

// maxShown is how many bytes of a text from outside a sentence has.
const maxShown = 240

// AskedWords is the request in a record as one sentence: `asked by ann 2m ago: "the deploy waits"; no answer yet`. The
// text in it is made visible. It is empty if the holder was not asked.
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

// RequestWords is [AskedWords] without a word about the answer, as of a hold that is over. q may be nil.
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

// ExtendedWords is the extension in a record as one sentence: `ann gave 30m more 2m ago: "the disk is slow"`. The text
// in it is made visible. It is empty if nobody gave the holder more time.
func ExtendedWords(r *metadata.Record, now time.Time) string { return ExtensionWords(r.Extended, now) }

// ExtensionWords is [ExtendedWords] of an extension, which may be nil.
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

// AcknowledgedWords is who looks at a hold as one sentence: `acknowledged by ann 5m ago, for another 25m: "the disk is
// full"`. The text in it is made visible. It is empty if nobody does. Of a hold that is over, see [LookedAtWords].
func AcknowledgedWords(r *metadata.Record, now time.Time) string {
	a := r.AcknowledgedAt(now)
	if a == nil {
		return ""
	}
	return "acknowledged by " + Person(a.By) + since(a.At.Time, now) + ", for another " +
		text.Countdown(a.Until.Sub(now)) + quoted(a.Note)
}

// LookedAtWords is who looked at a hold when it ended, as one sentence. a may be nil: nobody.
func LookedAtWords(a *metadata.Acknowledgement, now time.Time) string {
	if a == nil {
		return ""
	}
	return "acknowledged by " + Person(a.By) + since(a.At.Time, now) + quoted(a.Note)
}

// Person is a name in visible characters: of an operator, or the owner of a client.
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
