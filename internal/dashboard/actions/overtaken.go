package actions

import (
	"slices"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// deed is what somebody else did to a hold. The zero deed is none.
type deed struct {
	by  string // as the record has it
	who string // the same for people
	did string // after "has"
}

// overtaken says what somebody else has done since the person looked at the form, where that makes the action another
// one: it would replace what the person has not read, or give more time on top of more time. A second click is no
// second action. Programs say what they want without a form.
func (o *Operation) overtaken(caller string, d *metadata.Document, asked *Request) error {
	if asked.Looked == 0 || o.meanwhile == nil {
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

// missed reports whether a field was written after the form was shown.
func (r *Request) missed(d *metadata.Document, field string) bool {
	i := slices.IndexFunc(d.Fields, func(f metadata.Field) bool { return f.Name == field })
	return i >= 0 && d.Fields[i].ModRevision > r.Looked
}

func askedMeanwhile(d *metadata.Document, asked *Request) deed {
	if d.Asked == nil || !asked.missed(d, metadata.FieldAsked) {
		return deed{}
	}
	return deed{d.Asked.By, protocol.Asker(d.Asked), "asked the holder to finish"}
}

// extendedMeanwhile does not count that a holder moves its deadline whenever it reports that it is alive.
func extendedMeanwhile(d *metadata.Document, asked *Request) deed {
	switch {
	case d.Extended != nil && asked.missed(d, metadata.FieldExtended):
		return deed{d.Extended.By, protocol.Extender(d.Extended), "given it more time"}
	case d.Alive == nil && asked.missed(d, metadata.FieldAutoUnlockAt):
		return deed{"", "The holder", "extended the lock"}
	}
	return deed{}
}

func acknowledgedMeanwhile(d *metadata.Document, asked *Request) deed {
	now := d.Acknowledged
	if now == nil || !asked.missed(d, metadata.FieldAcknowledged) &&
		(!asked.Withdraw || asked.Acknowledged == now.Revision) {
		return deed{}
	}
	return deed{now.By, protocol.Acknowledger(now), "acknowledged the lock"}
}
