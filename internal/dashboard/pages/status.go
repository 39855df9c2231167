package pages

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type statusPage struct {
	app.Page
	Prefix        string
	Endpoints     []string // where the members are not known
	Members       []app.Member
	Alarm         string
	Certs         []app.Certificate
	Settings      []app.Setting
	Cause         string
	Synced        bool
	Since         *app.TimeText
	Total         int
	Unlockers     []metadata.Presence
	Inconsistent  []inconsistentLock // what no client leaves in etcd
	InconsistentN int
	Foreign       []string // keys below the prefix that fit no layout
	ForeignN      int
	Policy        []fact   // by what the unlockers decide
	Unknown       string   // why that is not known
	Disagree      []string // about what the unlockers disagree
	About         []fact   // this dashboard
}

type inconsistentLock struct{ Name, URL, Why string }

const maxInconsistent = 20

func (p *Pages) ServeStatus(r *app.Request) (app.Answer, error) {
	fresh := r.Fresh
	v := statusPage{Page: p.app.Page(r, "status"), Prefix: p.app.Config.Layout.Prefix(),
		Endpoints: p.app.Config.Endpoints,
		Cause:     fresh.Cause, Synced: fresh.Synced}
	v.AutoRefresh = true
	v.NavEntry = "status"
	v.JSON = p.app.URLs.To("api/v1/status")
	v.Since = v.Age(fresh.SyncedChangedAt)
	unlockers := p.app.Config.View.Unlockers()
	v.Unlockers = unlockers
	var wrong []diagnosis.Inconsistent
	if s, err := r.Loaded(); err == nil {
		v.Total = s.Totals.Total
		wrong = s.Inconsistent
	}
	v.InconsistentN = len(wrong)
	for _, l := range wrong[:min(len(wrong), maxInconsistent)] {
		name := text.Clip(l.Name, app.MaxNameShown)
		v.Inconsistent = append(v.Inconsistent, inconsistentLock{name, p.app.URLs.Lock(l.Name, ""), l.Why})
	}
	v.Foreign, v.ForeignN, _ = p.app.Config.View.Foreign()
	v.Alarm = p.app.Config.Alarm()
	v.Certs = p.app.Config.Certificates()
	if v.Members = p.app.Config.Members(); len(v.Members) > 0 {
		v.Endpoints = nil
	}
	v.About = p.aboutFacts(r)
	v.Settings = p.settings(r.Caller)
	if f := diagnosis.CombinePolicies(unlockers); f.IsKnown() {
		v.Policy = policyFacts(f.Policy)
		if globs := f.Exclusions(); len(globs) > 0 {
			shown := text.Visible(text.Clip(strings.Join(globs, " "), app.MaxLineShown))
			v.Policy = append(v.Policy, fact{"never removed", shown})
		}
	} else {
		v.Unknown = "How stale locks are handled is unknown"
		if len(f.PolicyUnknown) > 0 {
			v.Unknown += ": " + f.WhyUnknown()
		}
	}
	v.Disagree = diagnosis.Disagreements(unlockers)
	return p.app.Render("status", v)
}

func policyFacts(p staleness.Policy) []fact {
	abandoned := "reported only, until their deadline"
	if p.UnlockAbandoned {
		abandoned = "unlocked " + durationText(p.AbandonedGrace) + " after the proof was seen"
	}
	delay := "none"
	if p.LockDelay > 0 {
		delay = durationText(p.LockDelay)
	}
	return []fact{
		{"abandoned locks", abandoned},
		{"minimum warning", durationText(p.MinWarning)},
		{"clock skew", durationText(p.ClockSkew)},
		{"without an alert time", sinceSeen("alert", p.DefaultAlertAfter)},
		{"without a deadline", sinceSeen("removed", p.DefaultAutoUnlockAfter)},
		{"lock delay", delay + ", unless the record says otherwise"},
	}
}

func durationText(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	return text.Duration(d)
}

func sinceSeen(what string, after time.Duration) string {
	if after == 0 {
		return "never " + what
	}
	return what + " " + durationText(after) + " after they were first seen"
}

func (p *Pages) settings(c access.Caller) []app.Setting {
	return slices.DeleteFunc(slices.Clone(p.app.Config.Settings),
		func(s app.Setting) bool { return !s.Public && !c.May(access.Audit) })
}

// aboutFacts returns how this dashboard is set up, as far as that explains what it can do.
func (p *Pages) aboutFacts(r *app.Request) []fact {
	force := "off"
	if p.app.Config.IsEnabled(protocol.VerbForceUnlock) {
		force = "on, for callers with the permission unlock"
	}
	rights := make([]string, len(r.Caller.Permissions))
	for i, right := range r.Caller.Permissions {
		rights[i] = string(right)
	}
	list := []fact{{"callers' names", string(p.app.Config.Access.Source)}, {"you may", strings.Join(rights, ", ")},
		{"force unlock", force}}
	gaps, since := p.app.History.WatchGaps(r.Now, r.Fresh)
	if !since.IsZero() {
		list = append(list, fact{"watching since", app.UTC(since)},
			fact{"gaps since then", text.Thousands(len(gaps))})
	}
	return list
}
