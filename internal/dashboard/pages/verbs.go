package pages

import (
	"cmp"
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// canDo reports whether the caller may perform v on the hold, and v applies to it.
func canDo(r *app.Request, v protocol.Verb, hold *metadata.Record) bool {
	return r.MayDo(v, hold.Owner) && v.CheckHoldNow(hold, r.Now) == nil
}

func actionWords(a *protocol.Action) string {
	switch a.Verb {
	case protocol.VerbForceUnlock:
		return "force unlock"
	case protocol.VerbAsk:
		return "asked to finish"
	case protocol.VerbEndDelay:
		return "ended the lock delay"
	case protocol.VerbExtend:
		return "gave " + text.Duration(a.Duration()) + " more"
	case protocol.VerbAcknowledge:
		return "acknowledged for " + text.Duration(a.Duration())
	case protocol.VerbWithdraw:
		return "withdrew an acknowledgement"
	}
	return text.Clip(string(a.Verb), app.MaxWordShown)
}

func nonEmpty(sentences ...string) []string {
	return slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
}

// ackView is how to acknowledge a lock: the part "acknowledge" shows it.
type ackView struct {
	IsTaken bool   // it is acknowledged already
	URL     string // where the caller can acknowledge it, or withdraw that; empty where they may not
	Silence string // Alertmanager's form for a silence of its alerts; empty where that is not known
}

// ackText describes an acknowledgement: "ann is looking at it until 04:10 UTC: the disk is full".
func ackText(a *metadata.Acknowledgement) app.RichText {
	if a == nil {
		return nil
	}
	by := cmp.Or(text.Clip(a.By, app.MaxLineShown), "somebody")
	s := app.RichText{}.Value(by).Plain(" is looking at it until ").Time(&app.TimeText{At: a.Until.Time,
		Text: app.Minute(a.Until.Time)})
	if a.Note == "" {
		return s.Plain(".")
	}
	return s.Plain(": " + text.Visible(text.Clip(a.Note, 4*app.MaxReason)))
}

// fillAck adds the acknowledgement, and where the caller can write one.
func (p *Pages) fillAck(v *lockPage, r *app.Request, lock *app.Lock) {
	row := lock.Row
	v.Ack.IsTaken = row.Acknowledged != nil
	if row.Acknowledged != nil || row.Display != metadata.StateHeld {
		comment := ""
		if row.Acknowledged != nil {
			comment = row.Acknowledged.Note
		}
		v.Ack.Silence = p.app.Config.SilenceURL(row.Name, comment)
	}
	if lock.IsOutdated(v.Viewpoint) || !canDo(r, protocol.VerbAcknowledge, row.Record) {
		return
	}
	v.Ack.URL = p.app.URLs.Action("acknowledge", row.Name, row.UUID)
}

// delayView is a lock delay on the page of a lock: the part "delays" shows it.
type delayView struct {
	Words   string
	Command string // ends it
	URL     string // of the form that ends it, for those who may
}

// delaysView are the lock delays of a lock and of its shares: a few of them, if there are many.
type delaysView struct {
	First []delayView
	More  int
}

func (p *Pages) delaysOf(r *app.Request, name string) delaysView {
	delays := r.Snapshot().DelaysOf(name)
	view := delaysView{More: max(0, len(delays)-app.MaxDelaysShown)}
	for i := range delays[:len(delays)-view.More] {
		d := &delays[i]
		command := text.Mutexctl(app.EndDelay, d.Name, app.HoldFlags(d.UUID, "", "")...)
		v := delayView{Words: protocol.DescribeDelay(d, r.Now), Command: command}
		if !r.Viewpoint().Stale && r.MayDo(protocol.VerbEndDelay, d.Owner) {
			v.URL = p.app.URLs.Action("end-delay", d.Name, d.UUID)
		}
		view.First = append(view.First, v)
	}
	return view
}
