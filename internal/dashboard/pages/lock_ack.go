package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ackView is who looks at a lock, and how to do so: the parts "acknowledged" and "acknowledge" show it.
type ackView struct {
	Looked  phrase.Sentence // who looks at it; nil = nobody
	URL     string          // where the caller can acknowledge it, or withdraw that; empty where they may not
	Silence string          // Alertmanager's form for a silence of its alerts; empty where that is not known
	Framed  bool            // the page may be in a frame, where the form is not shown
}

// lookedView is who looks at a lock, in a row of the list.
type lookedView struct {
	By    string
	Until *phrase.Moment
	Note  string
}

func newLookedView(a *metadata.Acknowledgement) *lookedView {
	if a == nil {
		return nil
	}
	return &lookedView{By: text.Clip(a.By, maxLooker), Until: endOf(a), Note: text.Clip(a.Note, site.MaxLineShown)}
}

// maxLooker is how much of a name stands in a chip.
const maxLooker = 24

// endOf is the end of an acknowledgement. It is a time of day, because it is at most a day away.
func endOf(a *metadata.Acknowledgement) *phrase.Moment {
	return &phrase.Moment{At: a.Until.Time, Text: a.Until.UTC().Format("15:04") + " UTC"}
}

// lookedSentence says who looks at a lock: "ann looks at it until 04:10 UTC: the disk is full".
func lookedSentence(a *metadata.Acknowledgement) phrase.Sentence {
	if a == nil {
		return nil
	}
	by := a.By
	if by == "" {
		by = protocol.Person(a.By)
	}
	s := phrase.Sentence{}.Value(text.Clip(by, site.MaxLineShown)).Say(" looks at it until ").Time(endOf(a))
	if a.Note == "" {
		return s.Say(".")
	}
	return s.Say(": " + text.Visible(text.Clip(a.Note, 4*site.MaxReason)))
}

// fillAck adds who looks at the lock, and where the caller can say so.
func (p *Pages) fillAck(v *lockPage, r *site.Request, lock *site.Lock) {
	row := lock.Row
	config := &p.site.Config
	v.Ack.Looked = lookedSentence(row.Looked)
	v.Ack.Framed = len(config.FrameAncestors) > 0
	if row.Looked != nil || row.Display != locks.Held {
		comment := ""
		if row.Looked != nil {
			comment = row.Looked.Note
		}
		v.Ack.Silence = config.Silence(row.Name, comment)
	}
	if v.Stale || lock.Unread != "" && !lock.Silent || !canDo(p.site, r, protocol.ActionAcknowledge, row) {
		return
	}
	v.Ack.URL = p.site.URLs.Act("acknowledge", row.Name, row.UUID, FromView(p.site.URLs, r))
}
