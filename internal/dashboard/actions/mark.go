package actions

import (
	"cmp"
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// markPage is the form for actions that take nothing away from the holder: a request to finish, more time, an
// acknowledgement.
type markPage struct {
	holdForm
	Words     formWords
	Choices   []timeChoice // empty where no time is needed
	Own       string       // time of one's own choice
	OwnChosen bool
	Required  bool // the reason is

	// An acknowledgement that is there, and may be withdrawn.
	Withdraw     int64 // its revision; 0 = there is none
	Acknowledger string
}

// timeChoice is an amount of time that can be given with one click.
type timeChoice struct {
	Value, Text string
	Chosen      bool
}

// otherTime is the choice of an amount that is typed.
const otherTime = "own"

// markForm returns the form that asks for the reason and, if the verb has one, for the duration.
func (o *Operation) markForm(r *app.Request, lock *app.Lock, typed Request,
	wrong *FieldError) (app.Answer, error) {
	row := lock.Row
	v := markPage{holdForm: o.holdForm(r, lock, o.form.Tab, typed, "", wrong), Words: o.form,
		Required: o.MinReasonLength > 0}
	if o.CheckDuration != nil {
		v.fillTimes(typed.Duration)
	}
	if now := row.Acknowledgement; now != nil && o.Undo != "" {
		v.Withdraw = now.Revision
		v.Acknowledger = protocol.DisplayName(now.By)
	}
	if err := o.verb.CheckHoldNow(row.Record, r.Now); err != nil { // then the form could not do anything
		return app.Answer{}, notPossible(err.Error())
	}
	return o.app.Render("mark", v)
}

// fillTimes offers amounts of time. What was typed before stays chosen.
func (v *markPage) fillTimes(typed string) {
	v.Choices = []timeChoice{{"15m", "15 minutes", false}, {"30m", "30 minutes", false}, {"1h", "1 hour", false},
		{"2h", "2 hours", false}}
	chosen := slices.IndexFunc(v.Choices, func(c timeChoice) bool { return c.Value == cmp.Or(typed, "30m") })
	switch v.OwnChosen = chosen < 0; {
	case !v.OwnChosen:
		v.Choices[chosen].Chosen = true
	case typed != otherTime:
		v.Own = app.BoxText(typed)
	}
}

// checkConflict returns an error if the action would replace a mark that is newer than the form, or give more time on
// top of more time. A second click is not a second action. Programs act without a form.
func (o *Operation) checkConflict(caller string, d *metadata.FullRecord, wanted *Request) error {
	if wanted.SeenRevision == 0 {
		return nil
	}
	switch by, who, did := o.findConflict(d, wanted); {
	case did == "":
		return nil
	case by == caller:
		return &FieldError{Text: "You have already " + did + ", so nothing was done. Send this only if you " +
			"want to do it again."}
	default:
		return &FieldError{Text: who + " has " + did + " since you looked, so nothing was done. Send yours " +
			"if you still want to."}
	}
}

// findConflict returns what was done to the hold since the form was shown: by whom, as the record and as people name
// them, and what, after "has". The deadline that a holder moves with each alive call does not count.
func (o *Operation) findConflict(d *metadata.FullRecord, wanted *Request) (by, who, did string) {
	if o.Mark.Field == "" {
		return "", "", ""
	}
	by, left := o.Mark.Author(&d.Record)
	at := revisionOf(d, o.Mark.Field)
	switch {
	case left && (at > wanted.SeenRevision || wanted.Undo && at != wanted.SeenMark):
		return by, protocol.DisplayName(by), o.did
	case o.verb == protocol.VerbExtend && d.Alive == nil &&
		revisionOf(d, lockrecord.FieldAutoUnlockAt) > wanted.SeenRevision:
		return "", "The holder", "extended the lock"
	}
	return "", "", ""
}

// revisionOf returns the mod revision of a field; 0 if it does not exist.
func revisionOf(d *metadata.FullRecord, field string) int64 {
	i := slices.IndexFunc(d.Fields, func(f metadata.Field) bool { return f.Name == field })
	if i < 0 {
		return 0
	}
	return d.Fields[i].ModRevision
}
