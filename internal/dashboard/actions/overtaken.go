package actions

import (
	"slices"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// others are what somebody else did to a hold. Zero: nothing.
type others struct {
	by  string // as the record has it
	who string // the same for people
	did string // after "has"
}

// overtaken says what somebody else has done since the person looked at the form, where that makes the action another
// one: it would replace what the person has not read, or give more time on top of more time. A second click is no
// second action. Programs say what they want without a form.
func (o *Operation) overtaken(caller string, d *metadata.Document, asked *Request) error {
	if asked.Looked == 0 {
		return nil
	}
	switch done := o.meanwhile(d, asked); {
	case done.did == "":
		return nil
	case done.by == caller:
		return &FieldError{Text: "You have already " + done.did + ", so nothing was done now. Send this only if you " +
			"want to do it again."}
	default:
		return &FieldError{Text: done.who + " has " + done.did + " since you looked, so nothing was done. Send yours " +
			"if you still want to."}
	}
}

// meanwhile is what somebody else did to the hold since the form was shown. It does not count that a holder moves its
// deadline whenever it reports that it is alive.
func (o *Operation) meanwhile(d *metadata.Document, asked *Request) others {
	if o.Mark.By == nil {
		return others{}
	}
	by, left := o.Mark.By(&d.Record)
	at := revisionOf(d, o.Mark.Field)
	switch {
	case left && (at > asked.Looked || asked.Undo && at != asked.Mark):
		return others{by, protocol.Person(by), o.did}
	case o.verb == protocol.ActionExtend && d.Alive == nil && revisionOf(d, metadata.FieldAutoUnlockAt) > asked.Looked:
		return others{"", "The holder", "extended the lock"}
	}
	return others{}
}

// revisionOf is when a field was written; 0 = it is not there.
func revisionOf(d *metadata.Document, field string) int64 {
	i := slices.IndexFunc(d.Fields, func(f metadata.Field) bool { return f.Name == field })
	if i < 0 {
		return 0
	}
	return d.Fields[i].ModRevision
}
