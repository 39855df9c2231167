package pages

import (
	"slices"
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

func (d *Pages) ServeStatus(r *site.Request) (site.Answer, error) {
	fresh := r.Fresh
	v := statusPage{Page: d.Page(r, "status"), Prefix: d.Config.Layout.Prefix(),
		Endpoints: d.Config.Endpoints,
		Cause:     fresh.Cause, Synced: fresh.Synced}
	v.Follows = true
	v.Here = "status"
	v.JSON = d.Urls.To("api/v1/status")
	v.Since = v.Age(fresh.Since)
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
func (d *Pages) settings(c access.Caller) []setup.Setting {
	return slices.DeleteFunc(slices.Clone(d.Config.Settings),
		func(s setup.Setting) bool { return !s.Public && !c.May(access.Audit) })
}

// members are the endpoints of etcd for people.
func (d *Pages) members() []memberView {
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
func (d *Pages) about(r *site.Request) []fact {
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
		list = append(list, fact{"watching since", phrase.UTC(since)},
			fact{"gaps since then", phrase.Thousands(len(gaps))})
	}
	return list
}

// helpPage explains the pages.
type helpPage struct {
	site.Page
	States []locks.DisplayState
}

func (d *Pages) ServeHelp(r *site.Request) (site.Answer, error) {
	v := helpPage{d.Page(r, "help"), []locks.DisplayState{locks.Held, locks.Alerting, locks.Expiring, locks.Expired,
		locks.Malformed, locks.Abandoned}}
	v.Here = "help"
	body, err := d.Render("help", v)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}
