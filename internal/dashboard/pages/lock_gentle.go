package pages

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// GentleLink leads to what an operator can do without taking anything away.
type GentleLink struct{ Text, URL string }

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

// GentleLinks lead to what the caller may do for the holder of the lock, where it makes sense.
func GentleLinks(s *site.Site, r *site.Request, row *locks.Row) []GentleLink {
	var links []GentleLink
	from := FromView(s.URLs, r)
	if s.Config.Extend != nil && r.Caller.MayFor(access.Extend, row.Owner) &&
		protocol.CheckMoreTime(row.Record, time.Second, r.Now) == nil {
		links = append(links, GentleLink{"Give more time…", s.URLs.Act("extend", row.Name, row.UUID, from)})
	}
	if s.Config.AskHolder != nil && r.Caller.MayFor(access.Ask, row.Owner) && protocol.CheckAsk(row.Record) == nil {
		links = append(links, GentleLink{"Ask to finish…", s.URLs.Act("ask", row.Name, row.UUID, from)})
	}
	return links
}
