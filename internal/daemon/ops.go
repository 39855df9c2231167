package daemon

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/build"
)

// Ops serves what machines ask a program: liveness, readiness, metrics, profiles.
type Ops struct {
	Ready   *Readiness
	Metrics *prometheus.Registry
	Pprof   bool
	Log     zerolog.Logger
}

// Probes serves /livez and /-/healthy, which always succeed and never ask etcd; and /readyz and /-/ready, where
// exclude=NAME leaves out a condition.
func (o Ops) Probes() *http.ServeMux {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "alive") }
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /-/healthy", alive)
	mux.Handle("GET /readyz", o.Ready)
	mux.Handle("GET /-/ready", o.Ready)
	return mux
}

// Handler serves the probes, /metrics and, if enabled, profiles below /debug/pprof/. Programs add their own routes.
func (o Ops) Handler() *http.ServeMux {
	mux := o.Probes()
	mux.Handle("GET /metrics", newScrapes(promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
		ErrorLog: stdLogger(o.Log), ErrorHandling: promhttp.ContinueOnError, Registry: o.Metrics,
		Timeout: scrapeWithin,
	})))
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// NewRegistry returns a registry with the metrics of the process and of Go, and <namespace>_build_info.
func NewRegistry(namespace string) *prometheus.Registry {
	b := build.Current()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "The build of this program; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	})
	gauge.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(gauge, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
