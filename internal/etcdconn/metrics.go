package etcdconn

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Requests measures the requests of a client to etcd: every one that is sent, repetitions included. Watches and other streams
// are not requests in this sense. It is a prometheus.Collector.
type Requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewRequests returns the metrics <namespace>_etcd_requests_total and <namespace>_etcd_request_duration_seconds.
func NewRequests(namespace string) *Requests {
	return &Requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "etcd_requests_total", Help: "Requests to etcd by operation and gRPC status code.",
		}, []string{"op", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "etcd_request_duration_seconds", Help: "Time until etcd answered, or the request was given up.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"op"}),
	}
}

// DialOption lets the client that [New] makes with it be measured.
func (r *Requests) DialOption() grpc.DialOption { return grpc.WithChainUnaryInterceptor(r.measure) }

// Describe implements prometheus.Collector.
func (r *Requests) Describe(ch chan<- *prometheus.Desc) {
	r.total.Describe(ch)
	r.duration.Describe(ch)
}

// Collect implements prometheus.Collector.
func (r *Requests) Collect(ch chan<- prometheus.Metric) {
	r.total.Collect(ch)
	r.duration.Collect(ch)
}

func (r *Requests) measure(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	start, op := time.Now(), strings.ToLower(path.Base(method)) // "/etcdserverpb.KV/Txn": txn
	err := invoke(ctx, method, req, reply, cc, opts...)
	r.total.WithLabelValues(op, status.Code(err).String()).Inc()
	r.duration.WithLabelValues(op).Observe(time.Since(start).Seconds())
	return err
}
