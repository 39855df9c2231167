package etcdconn

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// RequestMetrics has the metrics of the requests of a client to etcd: every one that is sent, retries included, and
// lists that etcd streams. Watches and other two-way streams do not count as requests.
type RequestMetrics struct {
	prometheus.Collector
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewRequestMetrics returns the metrics <namespace>_etcd_requests_total and <namespace>_etcd_request_duration_seconds.
func NewRequestMetrics(namespace string) *RequestMetrics {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	return &RequestMetrics{
		Collector: all,
		total: register.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "etcd_requests_total",
			Help: "Requests to etcd, by operation and gRPC status code.",
		}, []string{"op", "code"}),
		duration: register.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "etcd_request_duration_seconds",
			Help:    "Time until etcd answered or the request was given up.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"op"}),
	}
}

// DialOptions returns options for [New] that measure the client.
func (r *RequestMetrics) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.measure),
		grpc.WithChainStreamInterceptor(r.measureStream)}
}

func (r *RequestMetrics) measure(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	start := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	r.count(method, start, err)
	return err
}

// measureStream measures a stream that is one response in pieces, when it ends: only then is its result known.
func (r *RequestMetrics) measureStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if start := time.Now(); !desc.ClientStreams {
		opts = append(slices.Clone(opts), grpc.OnFinish(func(err error) { r.count(method, start, err) }))
	}
	return open(ctx, desc, cc, method, opts...)
}

func (r *RequestMetrics) count(method string, start time.Time, err error) {
	op := strings.ToLower(path.Base(method)) // "/etcdserverpb.KV/Txn": txn
	r.total.WithLabelValues(op, status.Code(err).String()).Inc()
	r.duration.WithLabelValues(op).Observe(time.Since(start).Seconds())
}
