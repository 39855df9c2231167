package pages

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/deadlock"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/internal/unclaimed"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// verdict is the answer of the list, and how bad it is.
type verdict struct {
	Level string          // bad, alerting, warn, calm: a class
	Lead  phrase.Sentence // what matters most
	Then  phrase.Sentence // who is the cause of it, what happens next, and what else there is
}

// String is the answer for programs.
func (v verdict) String() string { return strings.TrimSpace(v.Lead.String() + " " + v.Then.String()) }

// Verdict says what a person must know first: which lock is in the way, who holds it, and what happens next. That the
// snapshot is stale is said by the banner of the page, and the sentence here then is about the last known state.
func (p *Pages) Verdict(r *site.Request, s *locks.Snapshot, at phrase.Viewpoint) verdict {
	b := banner{all: s.All, worst: s.Worst(), at: at, urls: p.site.URLs,
		counted: p.site.Config.Queues != nil, cycles: s.Cycles(), unclaimed: unclaimedIn(r)}
	unlockers, known := r.Unlockers()
	b.unattended = known && len(unlockers) == 0
	b.unlockers = func(row *locks.Row) []setup.Unlocker {
		part, _ := r.Part(row.Cluster)
		alive, _ := part.Site.Unlockers()
		return alive
	}
	if s.All.Expired > 0 {
		b.expired = oldestExpired(s)
	}
	return b.verdict()
}

// banner is what the answer of the list is made of.
type banner struct {
	all       locks.Counts
	worst     *locks.Impact // nil where nothing is wrong and nobody waits
	expired   *locks.Row    // the lock that expired longest ago; nil where none has
	cycles    []deadlock.Cycle
	unclaimed []claimless // free, and nobody in their queues takes them
	// unlockers are those that are alive in the cluster of a lock.
	unlockers func(*locks.Row) []setup.Unlocker
	// unattended says that no unlocker is alive in any of the clusters.
	unattended bool
	counted    bool // waiters are recorded
	at         phrase.Viewpoint
	urls       site.URLs
}

func (b *banner) verdict() verdict {
	v := verdict{Level: b.level()}
	if v.Lead = b.calm(); b.worst != nil {
		v.Lead, v.Then = b.impact(), b.then()
	}
	if l := b.longestUnclaimed(); l != nil && !b.at.Stale {
		v.Then = v.Lead.Say(" ").Sentence(v.Then)
		v.Lead = phrase.Sentence{}.Link(text.Clip(l.Name, site.MaxNameShown), l.urls.Lock(l.Name, "")).
			Say(" is free, and " + phrase.Plural(l.Waiters, "waiter does", "waiters do") + " not get it: ").
			Say("the first in line has not taken it for ").Time(b.at.Lasting(l.Since)).Say(".")
		if more := len(b.unclaimed) - 1; more > 0 {
			v.Lead = v.Lead.Say(" ").Link(phrase.Thousands(more)+" more", b.urls.To("waiting")).Say(" unclaimed.")
		}
	}
	if b.unattended && !b.at.Stale {
		v.Level = "bad"
		v.Then = v.Lead.Say(" ").Sentence(v.Then)
		v.Lead = phrase.Say("No unlocker is running: nothing is alerted or removed.")
	}
	return v
}

// level is how bad it is: the state of the lock that is named or, if that is sound, the worst state of all locks.
func (b *banner) level() string {
	if b.longestUnclaimed() != nil && !b.at.Stale {
		return "bad"
	}
	if b.worst != nil && b.worst.Row().Display.Troubled() {
		return string(b.worst.Row().Display)
	}
	switch all := b.all; {
	case all.Expired > 0:
		return "expired"
	case all.Abandoned > 0:
		return "abandoned"
	case all.Alerting > 0 || len(b.cycles) > 0 || len(b.unclaimed) > 0 && !b.at.Stale:
		return "alerting"
	case all.Expiring > 0:
		return "expiring"
	case all.Malformed > 0:
		return "warn"
	}
	return "calm"
}

// longestUnclaimed is the lock that nobody takes for the longest time, if it blocks more than the worst that is held.
func (b *banner) longestUnclaimed() *claimless {
	var found *claimless
	for i := range b.unclaimed {
		if l := &b.unclaimed[i]; found == nil || l.Since.Before(found.Since) {
			found = l
		}
	}
	if found != nil && b.worst != nil && b.worst.Waiters > found.Waiters {
		return nil
	}
	return found
}

// claimless is a lock that nobody takes, and the addresses of its cluster.
type claimless struct {
	unclaimed.Lock
	urls site.URLs
}

// unclaimedIn are the locks that nobody takes, in the clusters that the caller may see and that are not stale.
func unclaimedIn(r *site.Request) (all []claimless) {
	for _, part := range r.Each() {
		if part.Viewpoint().Stale {
			continue
		}
		for _, l := range part.Site.Unclaimed() {
			all = append(all, claimless{l, part.Site.URLs})
		}
	}
	return all
}

// Unclaimed is how many locks nobody takes although somebody waits, and which of them has been free for longest.
func (p *Pages) Unclaimed(r *site.Request) (n int, longest *unclaimed.Lock) {
	b := banner{unclaimed: unclaimedIn(r)}
	if l := b.longestUnclaimed(); l != nil {
		longest = &l.Lock
	}
	return len(b.unclaimed), longest
}

// calm is the answer where no lock is in the way.
func (b *banner) calm() phrase.Sentence {
	switch all := b.all; {
	case all.Malformed > 0:
		return phrase.Say(phrase.Plural(all.Malformed, "malformed lock", "malformed locks") +
			": a field that the protocol acts on is missing or cannot be read.")
	case all.Total > 0:
		return b.quiet()
	}
	return phrase.Say("No locks held.")
}

// then says who holds the lock that is in the way, what becomes of it, and what else there is.
func (b *banner) then() phrase.Sentence {
	said := b.holder().Sentence(b.next())
	if r := b.worst.Row(); b.expired != nil && r.Display != locks.Expired {
		said = said.Say(" ").Sentence(b.expiredSentence(r.Cluster == b.expired.Cluster &&
			pause(b.unlockers(r)) != nil && r.Display.Troubled()))
	}
	return said.Sentence(b.rest())
}

// impact names the lock that is most in the way, and says whom it blocks.
func (b *banner) impact() phrase.Sentence {
	w := b.worst
	r := w.Row()
	uuid := r.UUID
	if w.Lock != r.Name {
		uuid = ""
	}
	said := phrase.Sentence{}.Link(text.Clip(w.Lock, site.MaxNameShown), b.urls.Of(r).Lock(w.Lock, uuid))
	if w.Waiters > 0 {
		said = said.Say(" blocks " + phrase.Thousands(w.Waiters))
		if longest := b.at.Lasting(w.Longest); longest != nil {
			said = said.Say(" (longest ").Time(longest).Say(")")
		}
		return said.Say(".")
	}
	switch r.Display {
	case locks.Expired:
		said = said.Say(" expired ").Time(b.at.Since(r.Verdict().AutoUnlockAt))
	case locks.Abandoned:
		said = said.Say(" is abandoned")
	case locks.Alerting:
		said = said.Say(" has been alerting for ").Time(b.at.Lasting(r.Verdict().AlertAt))
	default:
		said = said.Say(" is about to be auto-unlocked")
	}
	return said.When(b.counted, "; nobody waits").Say(".")
}

// holder says who holds that lock, and when it was last heard of.
func (b *banner) holder() phrase.Sentence {
	if b.worst.Lock != b.worst.Row().Name || len(b.worst.Holders) > 1 {
		return b.sharers()
	}
	r := b.worst.Row()
	said := b.name(phrase.Say("Held"), r)
	switch {
	case r.Proven():
		return said.Say("; ").Sentence(howItEnded(r.Death, b.at)).Say(".")
	case r.Alive != nil && b.at.Lasting(r.Alive.At) != nil && r.Display.Troubled():
		said = said.Say(", silent for ").Time(b.at.Lasting(r.Alive.At))
	case r.Alive != nil && b.at.Lasting(r.Alive.At) != nil:
		said = said.Say(", alive ").Time(b.at.Lasting(r.Alive.At)).Say(" ago")
	default:
		if held := b.at.Lasting(r.LockedAt); held != nil {
			said = said.Say(" for ").Time(held)
		}
	}
	return said.Say(".")
}

// sharers says how a lock is taken that several can hold, and which of them is the trouble.
func (b *banner) sharers() phrase.Sentence {
	said := phrase.Say(capital(locks.UseOf(b.worst.Holders).Words()))
	r := b.worst.Row()
	if r.Display.Troubled() {
		said = b.name(said.Say("; one "+string(r.Display)+", held"), r)
	}
	return said.Say(".")
}

// name adds the owner and the end of the host, by which pods differ.
func (b *banner) name(said phrase.Sentence, r *locks.Row) phrase.Sentence {
	if r.Owner != "" {
		said = said.Say(" by ").Value(text.Clip(r.Owner, site.MaxWordShown))
	}
	if r.Hostname != "" {
		said = said.Say(" on ").Value(text.Clip(shortHost(r.Hostname), site.MaxWordShown))
	}
	return said
}

// shortHost is the end of a long name of a host: pods of one deployment differ only there.
func shortHost(host string) string {
	const most = 16
	if i := strings.LastIndexByte(host, '-'); len(host) > most && i > 0 && len(host)-i <= most && i+1 < len(host) {
		return "…" + host[i+1:]
	}
	return host
}

// next says what becomes of that lock by itself.
func (b *banner) next() phrase.Sentence {
	r := b.worst.Row()
	switch r.Display {
	case locks.Expired:
		return phrase.Say(" ").Sentence(b.removal(r))
	case locks.Abandoned:
		return phrase.Say(" ").Sentence(afterDeath(r, b.at, b.unlockers(r), false))
	case locks.Malformed:
		return phrase.Say(" Its record is malformed.")
	case locks.Held:
		return b.nextAlert(r)
	}
	unlockers := b.unlockers(r)
	switch left := b.at.Next(r.UnlockAt()); {
	case left == nil:
		return phrase.Say(" It never unlocks by itself.")
	case spared(r.Name, unlockers) != nil:
		return phrase.Say(" ").Sentence(spared(r.Name, unlockers))
	case pause(unlockers) != nil:
		return phrase.Say(" ").Sentence(pause(unlockers))
	case left.Kind == "over": // the snapshot is a moment old
		return phrase.Say(" Auto-unlock ").Time(&phrase.Moment{At: left.At, Text: "due"}).Say(".")
	case left.Kind == "":
		return phrase.Say(" Its auto-unlock was due, outcome unknown.")
	default:
		return phrase.Say(" Auto-unlock ").Time(left).Say(".")
	}
}

// nextAlert says when people will be alerted about a lock that is in the way as it was meant to be.
func (b *banner) nextAlert(r *locks.Row) phrase.Sentence {
	alert := b.at.Alert(r.Verdict().AlertAt)
	switch {
	case alert == nil:
		return phrase.Say(" It never alerts.")
	case !r.Verdict().AlertsAtUnlock():
		return phrase.Say(" Alert ").Time(alert).Say(".")
	case staleness.KeptAlive(r.Whole()):
		return phrase.Say(" If it falls silent, alert ").Time(alert).Say(".")
	}
	return phrase.Say(" Alert and auto-unlock ").Time(alert).Say(".")
}

// rest counts what else there is.
func (b *banner) rest() phrase.Sentence {
	var parts []string
	own := b.worst.Row()
	for _, c := range []struct {
		n     int
		state locks.DisplayState
	}{{b.all.Abandoned, locks.Abandoned}, {b.all.Alerting, locks.Alerting}, {b.all.Malformed, locks.Malformed}} {
		more := ""
		if c.state == own.Display {
			c.n--
			more = "more "
		}
		if c.n > 0 {
			parts = append(parts, phrase.Thousands(c.n)+" "+more+string(c.state))
		}
	}
	if b.expired != nil && own.Display == locks.Expired && b.all.Expired > 1 {
		parts = append([]string{phrase.Thousands(b.all.Expired-1) + " more expired"}, parts...)
	}
	var said phrase.Sentence
	if len(parts) > 0 {
		said = phrase.Say(" " + strings.Join(parts, ", ") + ".")
	}
	if n := len(b.cycles); n > 0 {
		said = said.Say(" ").Link(phrase.Plural(n, "deadlock", "deadlocks"), b.urls.To("waiting")).
			Say(" likely: processes wait for each other.")
	}
	if n := len(b.unclaimed); n > 0 && b.longestUnclaimed() == nil && !b.at.Stale {
		said = said.Say(" ").Link(phrase.Plural(n, "unclaimed lock", "unclaimed locks"), b.urls.To("waiting")).
			Say(": free, and the first in line does not take it.")
	}
	if len(said) == 0 && b.level() == "calm" {
		return phrase.Say(" No locks alerting.")
	}
	return said
}

func (b *banner) quiet() phrase.Sentence {
	said := phrase.Say("No locks alerting. " + phrase.Thousands(b.all.Total) + " held")
	if oldest := b.at.Lasting(b.all.Oldest); oldest != nil {
		said = said.Say(", oldest ").Time(oldest)
	}
	return said.Say(".")
}

// oldestExpired is the lock whose deadline passed first.
func oldestExpired(s *locks.Snapshot) (oldest *locks.Row) {
	for r := range s.Troubled() {
		if r.Display == locks.Expired &&
			(oldest == nil || r.Verdict().AutoUnlockAt.Before(oldest.Verdict().AutoUnlockAt)) {
			oldest = r
		}
	}
	return oldest
}

// expiredSentence says that locks should be gone by now that are not those that the answer begins with, and why they
// are not, unless that was said.
func (b *banner) expiredSentence(explained bool) phrase.Sentence {
	said := phrase.Say(phrase.Plural(b.all.Expired, "lock", "locks") + " expired")
	if !b.at.Stale {
		said = said.Say(" by ").Time(b.at.Age(b.expired.Verdict().AutoUnlockAt))
	}
	said = said.Say(": ").Link(text.Clip(b.expired.Name, site.MaxNameShown),
		b.urls.Of(b.expired).Lock(b.expired.Name, b.expired.UUID)).Say(".")
	if explained {
		return said
	}
	return said.Say(" ").Sentence(b.removal(b.expired))
}

// removal says why an expired lock is still there, where an unlocker tells.
func (b *banner) removal(r *locks.Row) phrase.Sentence {
	unlockers := b.unlockers(r)
	if why := spared(r.Name, unlockers); why != nil {
		return why
	}
	if why := pause(unlockers); why != nil {
		return why
	}
	f := setup.FateBy(unlockers)
	if !f.Known() {
		return notKnown("When it is removed", &f)
	}
	grace := f.Policy.ClockSkew + f.Policy.MinWarning + 5*time.Second
	if b.at.Now.Sub(r.Verdict().AutoUnlockAt) > grace {
		return phrase.Say("It should have been removed.")
	}
	return phrase.Say("It is about to be removed.")
}
