package pages

import (
	"cmp"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MarkLink leads to what an operator can do without taking anything away.
type MarkLink struct{ Text, URL string }

// MarkLinks lead to what the caller may do for the holder of the lock, where it makes sense: a holder that has ended
// neither finishes nor needs time.
func MarkLinks(r *app.Request, row *locks.Row) []MarkLink {
	var links []MarkLink
	if row.ProvenDead() {
		return nil
	}
	for _, l := range []struct {
		verb protocol.Verb
		text string
		page string
	}{
		{protocol.VerbExtend, "Give more time…", "extend"},
		{protocol.VerbAsk, "Ask to finish…", "ask"},
	} {
		if canDo(r, l.verb, row) {
			links = append(links, MarkLink{l.text, r.App.URLs.Act(l.page, row.Name, row.UUID, FromView(r))})
		}
	}
	return links
}

// canDo reports whether the caller may do it to the hold, and it makes sense.
func canDo(r *app.Request, v protocol.Verb, row *locks.Row) bool {
	return r.MayDo(v, row.Owner) && v.CheckHoldNow(row.Record, r.Now) == nil
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
		return "gave " + text.Duration(a.Length()) + " more"
	case protocol.VerbAcknowledge:
		return "acknowledged for " + text.Duration(a.Length())
	case protocol.VerbWithdraw:
		return "withdrew an acknowledgement"
	}
	return text.Clip(string(a.Verb), app.MaxWordShown)
}

// DoneTo is what others than its holder did to a hold, in sentences of visible characters.
func DoneTo(r *metadata.Record, now time.Time) []string {
	return said(append([]string{protocol.DescribeAcknowledgement(r, now)}, askedAndExtended(r, now)...)...)
}

func askedAndExtended(r *metadata.Record, now time.Time) []string {
	return said(protocol.DescribeFinishRequest(r, now), protocol.DescribeMoreTime(r.MoreTime, now))
}

// doneTo is the same of a hold that is over. Why a hold yielded says who asked already.
func doneTo(e *metadata.Ending, now time.Time) []string {
	asked := protocol.DescribePastFinishRequest(e.FinishRequest, now)
	if e.Cause == metadata.EndingYielded {
		asked = ""
	}
	return said(protocol.DescribePastAcknowledgement(e.Acknowledgement, now), asked,
		protocol.DescribeMoreTime(e.MoreTime, now))
}

// said returns the sentences that say something.
func said(sentences ...string) []string {
	return slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
}

// fillMarks adds the links to what the caller may do for the lock, where it makes sense.
func (p *Pages) fillMarks(v *lockPage, r *app.Request, lock *app.Lock) {
	if v.Stale || lock.Unread != "" && !lock.Silent {
		return
	}
	v.Marks = MarkLinks(r, lock.Row)
}

// ackView is who looks at a lock, and how to do so: the parts "acknowledged" and "acknowledge" show it.
type ackView struct {
	Looked  app.Sentence // who looks at it; nil = nobody
	URL     string       // where the caller can acknowledge it, or withdraw that; empty where they may not
	Silence string       // Alertmanager's form for a silence of its alerts; empty where that is not known
}

// lookedView is who looks at a lock, in a row of the list.
type lookedView struct {
	By    string
	Until *app.Moment
	Note  string
}

func newLookedView(a *metadata.Acknowledgement) *lookedView {
	if a == nil {
		return nil
	}
	return &lookedView{By: text.Clip(a.By, maxLooker), Until: endOf(a), Note: text.Clip(a.Note, app.MaxLineShown)}
}

// maxLooker is how much of a name stands in a chip.
const maxLooker = 24

// endOf is the end of an acknowledgement. It is a time of day, because it is at most a day away.
func endOf(a *metadata.Acknowledgement) *app.Moment {
	return &app.Moment{At: a.Until.Time, Text: a.Until.UTC().Format("15:04") + " UTC"}
}

// lookedSentence says who looks at a lock: "ann is looking at it until 04:10 UTC: the disk is full".
func lookedSentence(a *metadata.Acknowledgement) app.Sentence {
	if a == nil {
		return nil
	}
	by := cmp.Or(text.Clip(a.By, app.MaxLineShown), "somebody")
	s := app.Sentence{}.Value(by).Say(" is looking at it until ").Time(endOf(a))
	if a.Note == "" {
		return s.Say(".")
	}
	return s.Say(": " + text.Visible(text.Clip(a.Note, 4*app.MaxReason)))
}

// fillAck adds who looks at the lock, and where the caller can say so.
func (p *Pages) fillAck(v *lockPage, r *app.Request, lock *app.Lock) {
	row := lock.Row
	v.Ack.Looked = lookedSentence(row.Looked)
	if row.Looked != nil || row.Display != locks.Held {
		comment := ""
		if row.Looked != nil {
			comment = row.Looked.Note
		}
		v.Ack.Silence = p.app.Config.Silence(row.Name, comment)
	}
	if v.Stale || lock.Unread != "" && !lock.Silent || !canDo(r, protocol.VerbAcknowledge, row) {
		return
	}
	v.Ack.URL = p.app.URLs.Act("acknowledge", row.Name, row.UUID, FromView(r))
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
		command := p.app.Mutexctl(app.EndDelay, d.Name, app.OfHold(d.UUID, "", "")...)
		v := delayView{Words: protocol.DescribeDelay(d, r.Now), Command: command}
		if !r.Viewpoint().Stale && r.MayDo(protocol.VerbEndDelay, d.Owner) {
			v.URL = p.app.URLs.Act("end-delay", d.Name, d.UUID, FromView(r))
		}
		view.First = append(view.First, v)
	}
	return view
}
