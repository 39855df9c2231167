package site

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// A dashboard of several clusters has a site for each, which knows of no other, and one that shows them together. A
// request to that one has a part for each cluster, with the caller, the freshness and the snapshot that count there.

func (s *Site) newWhole(c access.Caller, now time.Time) *Request {
	made := &Request{Site: s, Now: now}
	names := make([]string, len(s.Parts))
	for i, part := range s.Parts {
		names[i] = part.Config.Cluster.Name
		r := part.newPart(c, now)
		r.whole = made
		made.parts = append(made.parts, r)
	}
	made.Caller = c.Among(names)
	made.Fresh = together(made.Each(), now)
	made.Snapshot = sync.OnceValue(func() *locks.Snapshot { return s.merged.snapshot(made) })
	return made
}

// together is how current what is shown of several clusters is. One that is away is shown as such and says nothing of
// the others, unless all are.
func together(parts []*Request, now time.Time) (all locks.Freshness) {
	for _, r := range parts {
		f := r.Fresh
		ours, others := f.Level(now), all.Level(now)
		switch {
		case ours == locks.Never:
		case others == locks.Never, others == locks.Stale && ours != locks.Stale,
			others == locks.Stale && f.Heard.After(all.Heard),
			ours != locks.Stale && f.Heard.Before(all.Heard):
			all = f
			all.Revision = 0 // there is one of each
		}
	}
	all.Synced = !slices.ContainsFunc(parts, func(r *Request) bool { return !r.Fresh.Synced })
	return all
}

// Several reports whether the answer is about several clusters.
func (r *Request) Several() bool { return len(r.parts) > 0 }

// Each are the requests to each of the clusters that the caller may view: this one, where there is only one.
func (r *Request) Each() []*Request {
	if !r.Several() {
		return []*Request{r}
	}
	var visible []*Request
	for _, part := range r.parts {
		if part.Caller.May(access.View) {
			visible = append(visible, r.rebound(part))
		}
	}
	return visible
}

// Query is a query with those clusters known that the caller may view.
func (r *Request) Query(q *locks.Query) *locks.Query {
	if r.Several() {
		var names []string
		for _, part := range r.Each() {
			names = append(names, part.Site.Config.Cluster.Name)
		}
		q.KnowClusters(names)
	}
	return q
}

// rebound is the part of the request as the middleware left it.
func (r *Request) rebound(part *Request) *Request {
	if r.Request == nil {
		return part
	}
	same := *part
	same.Request = r.Request
	return &same
}

// Part is the request to one of the clusters, whether the caller may view it or not.
func (r *Request) Part(cluster string) (*Request, bool) {
	for _, part := range r.parts {
		if part.Site.Config.Cluster.Name == cluster {
			return r.rebound(part), true
		}
	}
	return r, cluster == ""
}

// At is the point in time from which the locks of a cluster are looked at.
func (r *Request) At(cluster string) phrase.Viewpoint {
	part, _ := r.Part(cluster)
	return part.Viewpoint()
}

// Unlockers returns the unlockers that are alive in the clusters that the caller may view.
func (r *Request) Unlockers() (alive []protocol.Unlocker) {
	for _, part := range r.Each() {
		alive = append(alive, part.Site.Unlockers()...)
	}
	return alive
}

// Tag says in what state each cluster is, for the version of an answer.
func (r *Request) Tag() string {
	var b strings.Builder
	b.WriteString(string(r.Level()))
	for _, part := range r.Each() {
		if r.Several() {
			b.WriteString(" " + part.Site.Config.Cluster.Name + "=" + string(part.Level()))
			if len(part.Site.Unlockers()) == 0 {
				b.WriteString("!")
			}
		}
	}
	return b.String()
}

// merged are the pictures of several clusters, one for each set of them that callers may view.
type merged struct {
	mu   sync.Mutex
	sets map[string]*locks.Several
}

// maxSets is how many sets of clusters are kept a picture of.
const maxSets = 16

func (m *merged) snapshot(r *Request) *locks.Snapshot {
	var parts []locks.Part
	var names []string
	for _, part := range r.Each() {
		level := part.Level()
		if level == locks.Never {
			continue
		}
		p := locks.Part{Cluster: part.Site.Config.Cluster.Name, Snapshot: part.Snapshot()}
		if level == locks.Stale {
			p.Frozen = part.Fresh.Heard
		}
		parts = append(parts, p)
		names = append(names, p.Cluster)
	}
	return m.of(strings.Join(names, "/")).Current(r.Now, parts)
}

func (m *merged) of(set string) *locks.Several {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets[set] == nil {
		if m.sets == nil || len(m.sets) >= maxSets {
			m.sets = map[string]*locks.Several{}
		}
		m.sets[set] = locks.NewSeveral()
	}
	return m.sets[set]
}

// ClusterChip is a cluster as the head of every page shows it: how it does, and a link that chooses it.
type ClusterChip struct {
	Name, Label string
	Colour      string // class
	Level       locks.Level
	State       string // in words; empty: fine
	URL         string
	On          bool // it is chosen
}

// Clusters are the chips of the clusters that the caller may view. link is the page with another query.
func (s *Site) Clusters(r *Request, q *locks.Query, link func(query string) string) []ClusterChip {
	whole := r
	here := ""
	if r.whole != nil { // on a page of one of them, which is left for the list
		whole = r.rebound(r.whole)
		here = s.URLs.Cluster
	}
	if !whole.Several() {
		return nil
	}
	parts := whole.Each()
	var chosen []string
	for _, part := range parts {
		if name := part.Site.Config.Cluster.Name; q.ChoosesCluster(name) || name == here {
			chosen = append(chosen, name)
		}
	}
	var chips []ClusterChip
	for _, part := range parts {
		c := part.Site.Config.Cluster
		chip := ClusterChip{Name: c.Name, Label: c.Shown(), Colour: ColourOf(c), Level: part.Level(),
			State: stateWords(part), On: slices.Contains(chosen, c.Name)}
		switch {
		case here != "":
			chip.URL = link("cluster:" + c.Name)
		case chip.On:
			chip.URL = link(q.InClusters(slices.DeleteFunc(slices.Clone(chosen),
				func(name string) bool { return name == c.Name })...))
		case len(chosen)+1 == len(parts): // all are chosen by choosing none
			chip.URL = link(q.InClusters())
		default:
			chip.URL = link(q.InClusters(append(slices.Clone(chosen), c.Name)...))
		}
		chips = append(chips, chip)
	}
	return chips
}

// stateWords say how a cluster does; empty: fine.
func stateWords(r *Request) string {
	switch r.Level() {
	case locks.Never:
		return "no data"
	case locks.Stale:
		return "away since " + phrase.TimeOfDay(r.Fresh.Heard)
	}
	return ""
}

// severalBanner says of the clusters what a reader must know: which are away, and where nobody removes locks.
func severalBanner(r *Request, at phrase.Viewpoint) (said phrase.Sentence, about string) {
	next := func(part *Request) {
		said = said.When(said != nil, " ").Value(part.Site.Config.Cluster.Shown())
		about += "away." + part.Site.Config.Cluster.Name + "." + string(part.Level()) + "."
	}
	for _, part := range r.Each() {
		switch level := part.Level(); {
		case level == locks.Never:
			next(part)
			said = said.Say(" has not answered since the dashboard started; nothing is known about its locks.")
		case level == locks.Stale:
			next(part)
			said = said.Say(" is away: etcd has not answered since " + phrase.TimeOfDay(part.Fresh.Heard) + " UTC (").
				Time(at.Age(part.Fresh.Heard)).Say(")" + part.Fresh.Why() + ". Its locks are shown as of then.")
		case len(part.Site.Unlockers()) == 0:
			next(part)
			said = said.Say(" has no unlocker running: no alerts are raised and no locks are removed there.")
		}
	}
	return said, about
}

// knows reports whether the cluster has anything of a lock: a holder, or somebody who waits.
func (r *Request) knows(name string) bool {
	s, err := r.Loaded()
	if err != nil {
		return false
	}
	return len(s.Holders(name)) > 0 || len(s.Queues[name]) > 0
}

// WhichCluster is the cluster that a request means without naming it: the only one that knows the name, or the hold. ok
// is false if none does, or more than one.
func (r *Request) WhichCluster(name, hold string) (part *Request, ok bool) {
	var knowing []*Request
	for _, part := range r.Each() {
		if s, err := part.Loaded(); err == nil && hold != "" {
			if row := s.Find(name); row != nil && row.UUID == hold {
				return part, true
			}
		}
		if part.knows(name) {
			knowing = append(knowing, part)
		}
	}
	if len(knowing) != 1 {
		return nil, false
	}
	return knowing[0], true
}

// ErrWhichCluster refuses a request about a lock that does not say in which cluster.
func (r *Request) ErrWhichCluster(name string) error {
	var names []string
	for _, part := range r.Each() {
		names = append(names, part.Site.Config.Cluster.Name)
	}
	return &Problem{Status: http.StatusConflict, Code: "which_cluster", Title: "Which cluster?", Name: name,
		Detail: "This dashboard shows several clusters, and the address does not say which: begin the path with c/ " +
			"and one of " + strings.Join(names, ", ") + "."}
}

// noneLoaded is the reason why nothing is known, of each of several clusters.
func noneLoaded(r *Request) string {
	if !r.Several() {
		return r.Fresh.Reason()
	}
	var reasons []string
	for _, part := range r.Each() {
		reasons = append(reasons, part.Site.Config.Cluster.Name+": "+part.Fresh.Reason())
	}
	return cmp.Or(strings.Join(reasons, "; "), r.Fresh.Reason())
}
