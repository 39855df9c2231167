package dashboard

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the dashboard's own; the locks are counted by package lockmetrics. None carries the name of a lock.
type metrics struct {
	prometheus.Collector
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(actions prometheus.Collector) *metrics {
	all := prometheus.NewRegistry()
	all.MustRegister(actions)
	register := promauto.With(all)
	return &metrics{
		Collector: all,
		requests: register.NewCounterVec(prometheus.CounterOpts{
			Name: "mutexdash_http_requests_total", Help: "Requests answered, by route.",
		}, []string{"handler", "method", "code"}),
		seconds: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mutexdash_http_request_duration_seconds", Help: "Time to answer a request, by route.",
			Buckets: []float64{.001, .005, .025, .1, .25, 1, 5},
		}, []string{"handler", "method"}),
	}
}

// measure counts and times requests by route, never by path: paths are the client's.
func (d *Dashboard) measure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(seen, r)
		route := "none"
		method := r.Method
		if pattern := chi.RouteContext(r.Context()).RoutePattern(); len(pattern) >= len(d.route) {
			route = "/" + pattern[len(d.route):]
		}
		switch method {
		case http.MethodGet, http.MethodHead, http.MethodPost:
		default:
			method = "other"
		}
		status := cmp.Or(seen.Status(), http.StatusOK)
		d.metrics.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
		d.metrics.seconds.WithLabelValues(route, method).Observe(time.Since(start).Seconds())
	})
}
