package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// statusPage is the state of the dashboard itself, of etcd and of the unlockers.
type statusPage struct {
	site.Page
	Prefix    string
	Endpoints []string // where the members are not known
	Members   []memberView
	Settings  []setup.Setting
	Cause     string
	Synced    bool
	Since     *phrase.Moment
	Total     int
	Known     bool // which unlockers run
	Unlockers []unlockerView
	Foreign   []string // keys below the prefix that fit no layout
	ForeignN  int
	Policy    []fact
	About     []fact // this dashboard
}

type memberView struct{ Endpoint, Role, Version, Store, Problem string }

type unlockerView struct {
	ID, Host, Version, Mode string
	Started                 *phrase.Moment
	Arrived                 *phrase.Moment
	HeldBack                []string
}

func (d *Dashboard) status(r *site.Request) (site.Answer, error) {
	fresh := r.Fresh
	v := statusPage{Page: d.Page(r, "status"), Prefix: d.Config.Layout.Prefix(),
		Endpoints: d.Config.Endpoints,
		Cause:     fresh.Cause, Synced: fresh.Synced}
	v.Follows = true
	v.Here, v.JSON, v.Since = "status", d.Urls.To("api/v1/status"), v.Age(fresh.Since)
	if s, err := r.Loaded(); err == nil {
		v.Total = s.All.Total
	}
	var unlockers []setup.Unlocker
	unlockers, v.Known = d.Unlockers()
	for _, u := range unlockers {
		v.Unlockers = append(v.Unlockers, unlockerView{u.ID, u.Hostname, u.Version, u.Mode, v.Age(u.StartedAt.Time),
			v.Age(u.Arrived), u.HeldBack})
	}
	if d.Config.Foreign != nil {
		v.Foreign, v.ForeignN = d.Config.Foreign()
	}
	if v.Members = d.members(); len(v.Members) > 0 {
		v.Endpoints = nil
	}
	v.About = d.about(r)
	v.Settings = d.settings(r.Caller)
	p := d.Config.Policy
	for _, f := range []struct {
		label string
		value time.Duration
	}{{"alert", p.DefaultAlertAfter}, {"auto-unlock", p.DefaultAutoUnlockAfter}} {
		text := "never"
		if f.value > 0 {
			text = phrase.Duration(f.value) + " after they were first seen"
		}
		v.Policy = append(v.Policy, fact{f.label, text})
	}
	body, err := d.Render("status", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}

// settings are the flags that the caller may see.
func (d *Dashboard) settings(c access.Caller) []setup.Setting {
	return slices.DeleteFunc(slices.Clone(d.Config.Settings),
		func(s setup.Setting) bool { return !s.Public && !c.May(access.Audit) })
}

// members are the endpoints of etcd for people.
func (d *Dashboard) members() []memberView {
	if d.Config.Members == nil {
		return nil
	}
	var views []memberView
	for _, m := range d.Config.Members() {
		v := memberView{Endpoint: m.Endpoint, Role: m.Role, Version: m.Version, Problem: m.Problem}
		if m.Size > 0 {
			v.Store = megabytes(m.Size)
		}
		if m.Size > 0 && m.Quota > 0 {
			v.Store += " of " + megabytes(m.Quota)
		}
		views = append(views, v)
	}
	return views
}

func megabytes(n int64) string { return phrase.Thousands(int((n+1<<20-1)>>20)) + " MiB" }

// about tells how this dashboard is set up, as far as it helps somebody who wonders what it can do.
func (d *Dashboard) about(r *site.Request) []fact {
	force := "off"
	if d.Config.ForceUnlock != nil {
		force = "on, for callers with the permission unlock"
	}
	rights := make([]string, len(r.Caller.Rights))
	for i, right := range r.Caller.Rights {
		rights[i] = string(right)
	}
	list := []fact{{"callers' names", string(d.Config.Access.Source)}, {"you may", strings.Join(rights, ", ")},
		{"force unlock", force}}
	for _, f := range []struct {
		label, value string
		ok           bool
	}{
		{"backtraces", "hidden", d.Config.HideBacktraces},
		{"force unlocks", "are told to a webhook", d.Config.Notify != nil},
		{"address", d.Urls.Origin + d.Urls.Prefix, d.Urls.Origin != ""},
		{"fastest refresh", phrase.Duration(d.Config.MinRefresh), d.Config.MinRefresh >= time.Second},
		{"in frames of", strings.Join(d.Config.FrameAncestors, " "), len(d.Config.FrameAncestors) > 0},
		{"links", phrase.Plural(len(d.Config.Links), "on the page of a lock", "on the page of a lock"),
			len(d.Config.Links) > 0},
		{"source links", phrase.Plural(len(d.Config.Sources), "prefix", "prefixes"), len(d.Config.Sources) > 0},
	} {
		if f.ok {
			list = append(list, fact{f.label, f.value})
		}
	}
	gaps, since := d.History.Watched(r.Now, r.Fresh)
	if !since.IsZero() {
		list = append(list, fact{"watching since", phrase.UTC(since)}, fact{"gaps since then", phrase.Thousands(len(gaps))})
	}
	return list
}

type statusJSON struct {
	Level     locks.Level    `json:"level"` // live, delayed, stale, never
	Synced    bool           `json:"synced"`
	Cause     *string        `json:"cause"`
	HeardAt   *string        `json:"heard_at"`
	HeardIn   *float64       `json:"heard_at_in_seconds"`
	Revision  string         `json:"revision"`
	Version   *string        `json:"version"`
	Unlockers []unlockerJSON `json:"unlockers"`
	Members   []memberJSON   `json:"members"`
	Foreign   *int           `json:"foreign_keys"`
}

type memberJSON struct {
	Endpoint string  `json:"endpoint"`
	Role     *string `json:"role"` // leader, follower, learner
	Version  *string `json:"version"`
	Size     *int64  `json:"store_bytes"`
	Quota    *int64  `json:"quota_bytes"`
	Problem  *string `json:"problem"`
}

type unlockerJSON struct {
	ID        string   `json:"id"`
	Hostname  *string  `json:"hostname"`
	Version   *string  `json:"version"`
	Mode      *string  `json:"mode"`
	StartedAt *string  `json:"started_at"`
	StartedIn *float64 `json:"started_at_in_seconds"`
	ArrivedAt *string  `json:"arrived_at"`
	ArrivedIn *float64 `json:"arrived_at_in_seconds"`
	HeldBack  []string `json:"held_back"`
}

func (d *Dashboard) statusAPI(r *site.Request) (site.Answer, error) {
	now := r.Now
	fresh := r.Fresh
	j := statusJSON{Level: fresh.Level(now), Synced: fresh.Synced, Cause: known(fresh.Cause),
		Revision: strconv.FormatInt(fresh.Revision, 10), Version: known(d.Config.Version)}
	j.HeardAt, j.HeardIn = instants(fresh.Heard, now)
	unlockers, knownUnlockers := d.Unlockers()
	if knownUnlockers {
		j.Unlockers = make([]unlockerJSON, 0, len(unlockers))
	}
	for _, u := range unlockers {
		v := unlockerJSON{ID: u.ID, Hostname: known(u.Hostname), Version: known(u.Version), Mode: known(u.Mode),
			HeldBack: append([]string{}, u.HeldBack...)}
		v.StartedAt, v.StartedIn = instants(u.StartedAt.Time, now)
		v.ArrivedAt, v.ArrivedIn = instants(u.Arrived, now)
		j.Unlockers = append(j.Unlockers, v)
	}
	if d.Config.Members != nil {
		for _, m := range d.Config.Members() {
			j.Members = append(j.Members, memberJSON{m.Endpoint, known(m.Role), known(m.Version), known(m.Size),
				known(m.Quota), known(m.Problem)})
		}
	}
	if d.Config.Foreign != nil {
		_, total := d.Config.Foreign()
		j.Foreign = &total
	}
	return jsonAnswer(j, newMeta(r, now), "")
}

// helpPage explains the pages.
type helpPage struct {
	site.Page
	States []locks.DisplayState
}

func (d *Dashboard) help(r *site.Request) (site.Answer, error) {
	v := helpPage{d.Page(r, "help"), []locks.DisplayState{locks.Held, locks.Alerting, locks.Expiring, locks.Expired, locks.Malformed}}
	v.Here = "help"
	body, err := d.Render("help", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}
