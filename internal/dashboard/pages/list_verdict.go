package pages

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// verdict is the answer of the list, and how bad it is.
type verdict struct {
	Level string          // bad, warn, calm or the state of the lock that the answer is about: a class
	Lead  phrase.Sentence // what matters most
	Then  phrase.Sentence // who is the cause of it, what happens next, and what else there is
}

// String is the answer for programs.
func (v verdict) String() string { return strings.TrimSpace(v.Lead.String() + " " + v.Then.String()) }

// Verdict says what a person must know first: which lock is in the way, who holds it, and what happens next. That the
// snapshot is stale is said by the banner of the page, and the sentence here then is about the last known state.
func (p *Pages) Verdict(r *site.Request, s *locks.Snapshot, at phrase.Viewpoint) verdict {
	b := banner{all: s.All, worst: s.Worst(), at: at, urls: p.site.URLs,
		cycles: s.Cycles(), unclaimed: unclaimedIn(r),
		clusterOf: func(cluster string) string { return p.clusterOf(r, cluster) }}
	b.unattended = len(r.Unlockers()) == 0
	b.unlockers = func(row *locks.Row) []protocol.Unlocker {
		part, _ := r.Part(row.Cluster)
		return part.Site.Unlockers()
	}
	return b.verdict()
}

// banner is what the answer of the list is made of.
type banner struct {
	all       locks.Counts
	worst     *locks.Impact // nil where nothing is wrong and nobody waits
	cycles    []deadlock.Cycle
	unclaimed []unclaimedLock // free, and nobody in their queues takes them
	// unlockers are those that are alive in the cluster of a lock.
	unlockers func(*locks.Row) []protocol.Unlocker
	// clusterOf is a cluster for people; empty where there is only one.
	clusterOf func(string) string
	// unattended says that no unlocker is alive in any of the clusters.
	unattended bool
	at         phrase.Viewpoint
	urls       site.URLs
}

func (b *banner) verdict() verdict {
	v := b.first()
	v.Then = v.Then.Sentence(b.rest())
	if b.unattended && !b.at.Stale {
		v.Level = "bad"
		v.Then = v.Lead.Say(" ").Sentence(v.Then)
		v.Lead = phrase.Say("No unlocker has announced itself: none runs, or none can write to etcd, so " +
			"nothing is removed.")
	}
	return v
}

// first is about the one thing that matters most: level and sentences are about the same.
func (b *banner) first() verdict {
	switch {
	case len(b.cycles) > 0:
		return verdict{Level: "bad", Lead: b.deadlock()}
	case len(b.unclaimed) > 0:
		return verdict{Level: "bad", Lead: b.free()}
	case b.worst == nil || b.worst.Class() == locks.Peaceful:
		return b.calm()
	}
	return verdict{b.level(), b.impact(), b.holder().Sentence(b.next())}
}

// level is how bad it is what is wrong with the lock that is named.
func (b *banner) level() string {
	switch b.worst.Class() {
	case locks.Leaving:
		return "calm"
	case locks.Broken:
		return "warn"
	}
	return string(b.worst.Row().Display)
}

// deadlock names the locks whose holders have waited for each other for longest.
func (b *banner) deadlock() phrase.Sentence {
	const most = 3
	oldest := b.cycles[0]
	said := phrase.Sentence{}.Link("Deadlock", b.urls.To("waiting")).Say(" likely: the holders of ")
	names := oldest.Locks()
	more := max(0, len(names)-most)
	names = names[:len(names)-more]
	for i, name := range names {
		last := i+1 == len(names) && more == 0
		said = said.When(i > 0 && last, " and ").When(i > 0 && !last, ", ").Value(text.Clip(name, site.MaxNameShown))
	}
	if more > 0 {
		said = said.Say(" and " + phrase.Thousands(more) + " more")
	}
	return said.Say(" have waited for each other for ").Time(b.at.Lasting(oldest.Since)).Say(".")
}

// free names the lock that nobody has taken for longest although somebody waits.
func (b *banner) free() phrase.Sentence {
	l := longestUnclaimed(b.unclaimed)
	said := b.link(l.Name, l.urls.Lock(l.Name, ""), l.urls.Cluster).
		Say(" is free, and " + phrase.Plural(l.Waiters, "waiter does", "waiters do") + " not get it: ").
		Say("the first in line has not taken it for ").Time(b.at.Lasting(l.Since)).Say(".")
	if more := len(b.unclaimed) - 1; more > 0 {
		said = said.Say(" ").Link(phrase.Thousands(more)+" more", b.urls.To("waiting")).Say(" unclaimed.")
	}
	return said
}

// longestUnclaimed is the lock that nobody takes for the longest time; nil: there is none.
func longestUnclaimed(all []unclaimedLock) (longest *unclaimedLock) {
	for i := range all {
		if l := &all[i]; longest == nil || l.Since.Before(longest.Since) {
			longest = l
		}
	}
	return longest
}

// unclaimedLock is a lock that nobody takes, and the addresses of its cluster.
type unclaimedLock struct {
	unclaimed.Lock
	urls site.URLs
}

// unclaimedIn are the locks that nobody takes, in the clusters that the caller may see and that are not stale.
func unclaimedIn(r *site.Request) (all []unclaimedLock) {
	for _, part := range r.Each() {
		if part.Viewpoint().Stale {
			continue
		}
		for _, l := range part.Site.Unclaimed() {
			all = append(all, unclaimedLock{l, part.Site.URLs})
		}
	}
	return all
}

// Unclaimed is how many locks nobody takes although somebody waits, and which of them has been free for longest.
func (p *Pages) Unclaimed(r *site.Request) (n int, longest *unclaimed.Lock) {
	all := unclaimedIn(r)
	if l := longestUnclaimed(all); l != nil {
		longest = &l.Lock
	}
	return len(all), longest
}

// calm is the answer where nothing is wrong: who waits longest, and that the holder works.
func (b *banner) calm() verdict {
	v := verdict{Level: "calm", Lead: phrase.Say("No locks held.")}
	if b.all.Total == 0 {
		return v
	}
	v.Lead = phrase.Say("No locks alerting. " + phrase.Thousands(b.all.Total) + " held")
	if b.worst != nil {
		v.Lead = v.Lead.Say("; ").Sentence(b.longestWait()).Say(".")
		v.Then = b.holder().Sentence(b.nextAlert(b.worst.Row()))
		return v
	}
	if oldest := b.at.Lasting(b.all.Oldest); oldest != nil {
		v.Lead = v.Lead.Say(", oldest ").Time(oldest)
	}
	v.Lead = v.Lead.Say(".")
	return v
}

// longestWait says how many wait, and who of them has waited longest for what.
func (b *banner) longestWait() phrase.Sentence {
	w := b.worst
	said := phrase.Say(phrase.Plural(b.all.Waiting, "waits", "wait"))
	if longest := b.at.Lasting(w.Longest); longest != nil {
		said = said.When(b.all.Waiting > 1, ", the longest").Say(" for ").Time(longest)
	}
	said = said.Say(" behind ").Sentence(b.lock())
	if w.First.Owner == "" && w.First.Hostname == "" {
		return said
	}
	return by(said.Say(": "), "", w.First.Owner, w.First.Hostname)
}

// lock is the lock that is named, as a link.
func (b *banner) lock() phrase.Sentence {
	r := b.worst.Row()
	uuid := r.UUID
	if b.worst.Lock != r.Name {
		uuid = ""
	}
	return b.link(b.worst.Lock, b.urls.Of(r).Lock(b.worst.Lock, uuid), r.Cluster)
}

// link is a lock, as a link, and its cluster where there are several.
func (b *banner) link(lock, url, cluster string) phrase.Sentence {
	said := phrase.Sentence{}.Link(text.Clip(lock, site.MaxNameShown), url)
	if in := b.clusterOf(cluster); in != "" {
		said = said.Say(" in ").Value(in)
	}
	return said
}

// impact names the lock that is most in the way, and says whom it blocks.
func (b *banner) impact() phrase.Sentence {
	w := b.worst
	r := w.Row()
	said := b.lock()
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
	case locks.Malformed:
		said = said.Say(" is malformed")
	default:
		said = said.Say(" is about to be auto-unlocked")
	}
	return said.Say("; nobody waits.")
}

// holder says who holds that lock, and when it was last heard of.
func (b *banner) holder() phrase.Sentence {
	if b.worst.Lock != b.worst.Row().Name || len(b.worst.Holders) > 1 {
		return b.sharers()
	}
	r := b.worst.Row()
	said := by(phrase.Say("Held"), " by ", r.Owner, r.Hostname)
	if r.Proven() {
		return said.Say("; ").Sentence(howItEnded(r.Death, b.at)).Say(".")
	}
	if r.Alive == nil || r.Alive.At.IsZero() {
		if held := b.at.Lasting(r.LockedAt); held != nil {
			said = said.Say(" for ").Time(held)
		}
		return said.Say(".")
	}
	heard := b.at.Lasting(r.Alive.At)
	switch silence := b.at.AsOf.Sub(r.Alive.At); {
	case locks.Troubled(r.Display):
		said = said.Say(", silent for ").Time(heard)
	case silence > r.Verdict().AlertAt.Sub(b.at.AsOf): // too long to call it working
		said = said.Say(", alive ").Time(heard).Say(" ago")
	case r.Alive.Progress == "":
		said = said.Say("; its process lives (").Time(heard).Say(" ago)")
	default:
		said = said.Say("; its holder works (").Value(text.Clip(r.Alive.Progress, site.MaxWordShown)).Say(", ").
			Time(heard).Say(" ago)")
	}
	return said.Say(".")
}

// sharers says how a lock is taken that several can hold, and which of them is the trouble.
func (b *banner) sharers() phrase.Sentence {
	said := phrase.Say(phrase.Capital(locks.UseOf(b.worst.Holders).Words()))
	r := b.worst.Row()
	if locks.Troubled(r.Display) {
		said = by(said.Say("; one "+string(r.Display)+", held"), " by ", r.Owner, r.Hostname)
	}
	return said.Say(".")
}

// by adds the owner after a word, and the end of the host, by which pods differ.
func by(said phrase.Sentence, word, owner, host string) phrase.Sentence {
	if owner != "" {
		said = said.Say(word).Value(text.Clip(owner, site.MaxWordShown))
	}
	if host != "" {
		said = said.Say(" on ").Value(text.Clip(shortHost(host), site.MaxWordShown))
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
		return phrase.Say(" A field that the protocol acts on is missing or cannot be read.")
	}
	unlockers := b.unlockers(r)
	switch left := b.at.Next(r.UnlockAt()); {
	case left == nil:
		return phrase.Say(" It never unlocks by itself.")
	case Spared(r.Name, unlockers) != nil:
		return phrase.Say(" ").Sentence(Spared(r.Name, unlockers))
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
	case staleness.KeptAlive(r.Record):
		return phrase.Say(" If it falls silent, alert ").Time(alert).Say(".")
	}
	return phrase.Say(" Alert and auto-unlock ").Time(alert).Say(".")
}

// rest counts what else there is.
func (b *banner) rest() phrase.Sentence {
	var parts []string
	var named locks.DisplayState
	if b.worst != nil && len(b.cycles) == 0 && len(b.unclaimed) == 0 {
		named = b.worst.Row().Display
	}
	counts := troubles(&b.all)
	slices.SortFunc(counts, func(a, b stateCount) int { return a.State.Compare(b.State) })
	for _, c := range counts {
		more := ""
		if c.State == named {
			c.N--
			more = "more "
		}
		if c.N > 0 {
			parts = append(parts, phrase.Thousands(c.N)+" "+more+string(c.State))
		}
	}
	var said phrase.Sentence
	if len(parts) > 0 {
		said = phrase.Say(" " + strings.Join(parts, ", ") + ".")
	}
	if more := len(b.cycles) - 1; more > 0 {
		said = said.Say(" ").Link(phrase.Plural(more, "more deadlock", "more deadlocks"), b.urls.To("waiting")).
			Say(" likely.")
	}
	if n := len(b.unclaimed); n > 0 && len(b.cycles) > 0 {
		said = said.Say(" ").Link(phrase.Plural(n, "unclaimed lock", "unclaimed locks"), b.urls.To("waiting")).
			Say(": free, and the first in line does not take it.")
	}
	return said
}

// removal says why an expired lock is still there, where an unlocker tells.
func (b *banner) removal(r *locks.Row) phrase.Sentence {
	unlockers := b.unlockers(r)
	if why := Spared(r.Name, unlockers); why != nil {
		return why
	}
	if why := pause(unlockers); why != nil {
		return why
	}
	f := setup.FateBy(unlockers)
	if !f.Known() {
		return notKnown("When it is removed", &f)
	}
	if r.Class() == locks.Overdue {
		return phrase.Say("It should have been removed.")
	}
	return phrase.Say("It is about to be removed.")
}
