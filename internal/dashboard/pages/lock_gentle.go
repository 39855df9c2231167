package pages

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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
