package unlocker

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/witness/pod"
	"github.com/clustermutex/unlocker/pkg/staleness"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// page is the status page of this unlocker, at the address of its metrics. The dashboard shows the locks.
type page struct {
	components *components
	ready      *daemon.Readiness
}

type shown struct {
	ID, Version string
	Policy      staleness.Policy
	Now         time.Time
	NotReady    string
	Fresh       protocol.Freshness
	Sweep       sweeper.Status
	Etcd        *etcdconn.Health // nil until etcd was asked once
	Unlockers   []protocol.Unlocker
	Pods        *pod.Status // nil without a witness in Kubernetes
}

// routes adds the page to the routes of probes and metrics, all of them below prefix.
func (p *page) routes(ops *http.ServeMux, prefix string) http.Handler {
	ops.Handle("GET /{$}", p)
	return below(prefix, ops)
}

// below serves the routes below prefix.
func below(prefix string, routes http.Handler) http.Handler {
	if prefix == "" {
		return routes
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, routes))
	return mux
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var body bytes.Buffer
	if err := statusPage.Execute(&body, p.show()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.Write(body.Bytes())
}

func (p *page) show() shown {
	r := p.components
	s := shown{
		ID: r.config.ID, Version: r.config.Version, Policy: r.config.Policy, Now: time.Now().UTC(),
		Fresh: r.view.Fresh(), Sweep: r.sweeper.Status(), Etcd: r.health.Last(), Unlockers: r.view.Unlockers(),
	}
	if r.pods != nil {
		pods := r.pods.Status()
		s.Pods = &pods
	}
	s.Fresh.Cause = wiring.Cause(s.Fresh, r.trouble)
	if err := p.ready.Check(); err != nil {
		s.NotReady = err.Error()
	}
	return s
}

// clock describes how our wall clock compares with the others'.
func clock(s sweeper.Status) string {
	offset := s.Offset.Round(time.Millisecond)
	switch {
	case s.WallClock == staleness.Unverified:
		return "unverified: there is nothing to compare it with"
	case offset > 0:
		return fmt.Sprintf("%s, %v ahead of the others", s.WallClock, offset)
	case offset < 0:
		return fmt.Sprintf("%s, %v behind the others", s.WallClock, -offset)
	}
	return fmt.Sprintf("%s, in agreement with the others", s.WallClock)
}

var statusPage = template.Must(template.New("status").Funcs(template.FuncMap{
	"utc":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"short": func(d time.Duration) time.Duration { return d.Round(time.Second) },
	"ms":    func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) },
	"clock": clock,
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>unlocker {{.ID}}</title></head>
<body>
<h1>unlocker {{.ID}}</h1>
<p>{{with .NotReady}}<strong>Not ready:</strong> {{.}}.{{else}}Ready.{{end}}
Policy <strong>{{.Sweep.Mode}}</strong>.
{{- if not .Fresh.Synced}} <strong>The view of the locks is not current:</strong> {{.Fresh.Cause}}.{{end}}
{{- if not .Sweep.Writable}} {{with .Sweep.Failure}}<strong>etcd takes no writes:</strong> {{.}}{{else}}<strong>No recent write to etcd was confirmed</strong>{{end}}.{{end}}
{{- if not .Sweep.Forward}} <strong>etcd went back to an older state:</strong> nothing is removed until all unlockers that saw the later one are restarted, which confirms it.{{end}}
{{- if .Sweep.Brake}} <strong>Brake:</strong> so many locks are due at once that each unlocker removes only one a second.{{end}}</p>
<table>
<tr><th>locks<td>{{range $state, $n := .Sweep.States}}{{$n}} {{$state}} {{else}}none{{end}}
<tr><th>due, but held back<td>{{range $rule, $n := .Sweep.HeldBack}}{{if $n}}{{$n}} by {{$rule}} {{end}}{{end}}
<tr><th>due within a minute<td>{{.Sweep.DueSoon}}
<tr><th>set aside after failures<td>{{.Sweep.SetAside}}
<tr><th>last gap<td>{{short .Sweep.SinceGap}} ago: {{.Sweep.GapCause}}
<tr><th>wall clock<td>{{clock .Sweep}}, {{.Sweep.ClockJumps}} jumps; it is {{utc .Now}}
<tr><th>etcd<td>revision {{.Sweep.Revision}}, {{if .Fresh.Heard.IsZero}}never heard from{{else}}last heard from {{utc .Fresh.Heard}}{{end}}
{{- with .Etcd}}{{range .Members}}
<tr><th>member {{.Endpoint}}<td>{{with .Problem}}{{.}}{{else}}{{.Version}}{{if .Leader}}, leader{{end}}, answered in {{ms .Took}}{{with .Outdated}}; <strong>{{.}}</strong>{{end}}{{end}}{{end}}
<tr><th>etcd alarms<td>{{with .Problem}}unknown: {{.}}{{else}}{{range .Alarms}}{{.Kind}} by {{.Member}} {{else}}none{{end}}{{end}}{{end}}
{{- with .Pods}}
<tr><th>witness in Kubernetes<td>{{.Pods}} pods{{if not .Synced}}; blind: {{range .Trouble}}{{.}} {{else}}not all pods are known yet{{end}}{{end}}{{end}}
<tr><th>unlockers<td>{{range .Unlockers}}{{.ID}} ({{.Mode}}) {{end}}
<tr><th>policy<td>clock skew {{.Policy.ClockSkew}}, minimum warning {{.Policy.MinWarning}}; without readable deadlines alert after {{.Policy.DefaultAlertAfter}}, removal after {{.Policy.DefaultAutoUnlockAfter}} (0s = never); abandoned locks are {{if .Policy.UnlockAbandoned}}removed after {{.Policy.AbandonedGrace}}{{else}}only reported{{end}}; lock delay {{.Policy.LockDelay}} where the record does not say
<tr><th>version<td>{{.Version}}
</table>
<p><a href="metrics">metrics</a> · <a href="readyz">readyz</a> · <a href="livez">livez</a></p>
</body>
</html>
`))
