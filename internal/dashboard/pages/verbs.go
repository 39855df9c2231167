package pages

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// GentleLink leads to what an operator can do without taking anything away.
type GentleLink struct{ Text, URL string }

// GentleLinks lead to what the caller may do for the holder of the lock, where it makes sense.
func GentleLinks(s *site.Site, r *site.Request, row *locks.Row) []GentleLink {
	var links []GentleLink
	for _, l := range []struct {
		verb protocol.Verb
		text string
		page string
	}{
		{protocol.ActionExtend, "Give more time…", "extend"},
		{protocol.ActionAsk, "Ask to finish…", "ask"},
	} {
		if canDo(s, r, l.verb, row) {
			links = append(links, GentleLink{l.text, s.URLs.Act(l.page, row.Name, row.UUID, FromView(s.URLs, r))})
		}
	}
	return links
}

// canDo reports whether the caller may do it to the hold, and it makes sense.
func canDo(s *site.Site, r *site.Request, v protocol.Verb, row *locks.Row) bool {
	return s.MayDo(r, v, row.Owner) && v.PossibleNow(row.Record, r.Now) == nil
}

// actionWords says what an operator did.
func actionWords(a *protocol.Action) string {
	switch a.Action {
	case protocol.ActionForceUnlock:
		return "force unlock"
	case protocol.ActionAsk:
		return "asked to finish"
	case protocol.ActionEndDelay:
		return "ended the lock delay"
	case protocol.ActionExtend:
		return "gave " + text.Duration(a.Length()) + " more"
	case protocol.ActionAcknowledge:
		return "acknowledged for " + text.Duration(a.Length())
	case protocol.ActionWithdraw:
		return "withdrew an acknowledgement"
	}
	return text.Clip(string(a.Action), site.MaxWordShown)
}

// DoneTo is what others than its holder did to a hold, in sentences of visible characters.
func DoneTo(r *metadata.Record, now time.Time) []string {
	return said(append([]string{protocol.AcknowledgedWords(r, now)}, askedAndExtended(r, now)...)...)
}

func askedAndExtended(r *metadata.Record, now time.Time) []string {
	return said(protocol.AskedWords(r, now), protocol.ExtendedWords(r, now))
}

// doneTo is the same of a hold that is over. Why a hold yielded says who asked already.
func doneTo(e *metadata.Ending, now time.Time) []string {
	asked := protocol.RequestWords(e.Asked, now)
	if e.Ended == metadata.EndedYielded {
		asked = ""
	}
	return said(protocol.LookedAtWords(e.Acknowledged, now), asked, protocol.ExtensionWords(e.Extended, now))
}

// said returns the sentences that say something.
func said(sentences ...string) []string {
	return slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
}

// fillGentle adds the links to what the caller may do for the lock, where it makes sense.
func (p *Pages) fillGentle(v *lockPage, r *site.Request, lock *site.Lock) {
	if v.Stale || lock.Unread != "" && !lock.Silent {
		return
	}
	v.Gentle = GentleLinks(p.site, r, lock.Row)
	v.Framed = len(p.site.Config.FrameAncestors) > 0
}
