package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// delayView is a lock delay on the page of a lock: the part "delays" shows it.
type delayView struct {
	Words   string
	Command string // ends it
	URL     string // of the form that ends it, for those who may
	Framed  bool   // the page may be in a frame, where the form is not shown
}

// delayViews are the lock delays of a lock and of its shares: a few of them, if there are many.
func (p *Pages) delayViews(r *site.Request, name string) []delayView {
	var views []delayView
	delays := p.site.Delays(name)
	for i := range delays[:min(len(delays), site.MaxDelaysShown)] {
		d := &delays[i]
		command := p.site.Mutexctl("end-delay", d.Lock, site.OfHold(d.UUID, "", "")...)
		v := delayView{Words: protocol.DelayWords(d, r.Now), Command: command,
			Framed: len(p.site.Config.FrameAncestors) > 0}
		if !r.Viewpoint().Stale && p.site.MayDo(r, protocol.ActionEndDelay, d.Owner) {
			v.URL = p.site.URLs.Act("end-delay", d.Lock, d.UUID, FromView(p.site.URLs, r))
		}
		views = append(views, v)
	}
	return views
}
