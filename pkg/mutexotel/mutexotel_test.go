package mutexotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexotel"
)

// world is a program with telemetry, on a real etcd.
type world struct {
	*testing.T
	server *locktest.Server
	locks  *mutex.Client
	spans  *tracetest.SpanRecorder
	tracer *trace.TracerProvider
	reader *metric.ManualReader
}

func start(t *testing.T) *world {
	w := &world{T: t, server: locktest.New(t), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	w.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(w.spans))
	telemetry, err := mutexotel.New(mutexotel.Options{
		Tracers: w.tracer, Meters: metric.NewMeterProvider(metric.WithReader(w.reader)), Owner: "billing",
		Group: func(lock string) string { kind, _, _ := strings.Cut(lock, "/"); return kind },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.locks = w.server.Client(mutex.Options{Owner: "billing", Hooks: telemetry.Hooks(),
		ContextOptions: mutexotel.TraceID})
	return w
}

func (w *world) take(ctx context.Context, name string, opts ...mutex.Option) *mutex.Lock {
	w.Helper()
	l, err := w.locks.Lock(ctx, name, opts...)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) eventually(happens func() bool) {
	w.Helper()
	for until := time.Now().Add(30 * time.Second); !happens(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			w.Fatal("it did not happen")
		}
	}
}

// ended waits for a span of this name with these attributes to end, and returns it.
func (w *world) ended(name string, attributes ...attribute.KeyValue) (span trace.ReadOnlySpan) {
	w.Helper()
	w.eventually(func() bool {
		i := slices.IndexFunc(w.spans.Ended(), func(s trace.ReadOnlySpan) bool {
			return s.Name() == name && !slices.ContainsFunc(attributes, func(want attribute.KeyValue) bool {
				return !slices.Contains(s.Attributes(), want)
			})
		})
		if i >= 0 {
			span = w.spans.Ended()[i]
		}
		return i >= 0
	})
	return span
}

// points are the measurements of a histogram, by their attributes.
func (w *world) points(name string) map[string]metricdata.HistogramDataPoint[float64] {
	w.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(w.Context(), &all); err != nil {
		w.Fatal(err)
	}
	found := map[string]metricdata.HistogramDataPoint[float64]{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == name {
				if m.Unit != "s" || scope.Scope.Name != mutexotel.Scope {
					w.Errorf("%s of %s is in %q", name, scope.Scope.Name, m.Unit)
				}
				for _, p := range h.DataPoints {
					found[p.Attributes.Encoded(attribute.DefaultEncoder())] = p
				}
			}
		}
	}
	return found
}

func (w *world) wantPoints(name string, counts map[string]uint64) {
	w.Helper()
	got := map[string]uint64{}
	for attributes, p := range w.points(name) {
		got[attributes] = p.Count
	}
	if !maps.Equal(got, counts) {
		w.Errorf("%s: %v, want %v", name, got, counts)
	}
}

func TestAWaitAndAHoldAreSpansOfTheCaller(t *testing.T) {
	w := start(t)
	ctx, caller := w.tracer.Tracer("test").Start(t.Context(), "monthly run")
	l := w.take(ctx, "invoices/7")
	waiting := make(chan *mutex.Lock)
	go func() {
		second, _ := w.locks.Lock(ctx, "invoices/7")
		waiting <- second
	}()
	w.eventually(func() bool { return w.waiters("invoices/7") == 1 })
	before := time.Now()
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	(<-waiting).Unlock()
	caller.End()

	hold := w.ended("lock hold", attribute.Int64("mutex.token", l.Token()))
	for _, s := range []trace.ReadOnlySpan{w.ended("lock wait"), hold} {
		if s.Parent().SpanID() != caller.SpanContext().SpanID() ||
			s.SpanContext().TraceID() != caller.SpanContext().TraceID() {
			t.Errorf("%s is no child of the caller's span", s.Name())
		}
	}
	want := attribute.NewSet(attribute.String("mutex.lock", "invoices/7"), attribute.String("mutex.owner", "billing"),
		attribute.String("mutex.uuid", l.UUID()), attribute.Int64("mutex.token", l.Token()),
		attribute.String("mutex.outcome", "released"))
	if got := attribute.NewSet(hold.Attributes()...); !got.Equals(&want) {
		t.Errorf("the hold has %v", hold.Attributes())
	}
	if hold.Status().Code != codes.Unset {
		t.Errorf("the hold has the status %v", hold.Status())
	}
	var waits []trace.ReadOnlySpan
	for _, s := range w.spans.Ended() {
		if s.Name() == "lock wait" {
			waits = append(waits, s)
		}
	}
	if len(waits) != 2 || waits[1].StartTime().After(before) || waits[1].EndTime().Before(before) {
		t.Errorf("the second wait is not around the unlock of the first hold: %v", waits)
	}
	if hold.EndTime().Before(before) {
		t.Errorf("the hold ended at %v, before it was unlocked at %v", hold.EndTime(), before)
	}
	w.wantPoints("mutex.wait.duration", map[string]uint64{"mutex.group=invoices,mutex.result=acquired": 2})
	w.wantPoints("mutex.hold.duration", map[string]uint64{"mutex.group=invoices,mutex.outcome=released": 2})
}

func (w *world) waiters(lock string) int {
	inspector, err := inspect.New(w.server.Etcd(), inspect.Options{})
	if err != nil {
		w.Fatal(err)
	}
	state, err := inspector.Get(w.Context(), lock)
	if err != nil {
		w.Fatal(err)
	}
	return len(state.Waiters)
}

func TestAMeasurementLeadsToItsTrace(t *testing.T) {
	w := start(t)
	ctx, caller := w.tracer.Tracer("test").Start(t.Context(), "monthly run")
	w.take(ctx, "a").Unlock()
	for name, span := range map[string]trace.ReadOnlySpan{"mutex.wait.duration": w.ended("lock wait"),
		"mutex.hold.duration": w.ended("lock hold")} {
		for attributes, p := range w.points(name) {
			id, trace := span.SpanContext().SpanID(), caller.SpanContext().TraceID()
			if len(p.Exemplars) != 1 || string(p.Exemplars[0].SpanID) != string(id[:]) ||
				string(p.Exemplars[0].TraceID) != string(trace[:]) {
				t.Errorf("%s %s has the exemplars %v", name, attributes, p.Exemplars)
			}
		}
	}
}

func TestTheRecordNamesTheTrace(t *testing.T) {
	w := start(t)
	ctx, caller := w.tracer.Tracer("test").Start(t.Context(), "monthly run")
	w.take(ctx, "traced")
	w.take(t.Context(), "untraced")
	w.take(ctx, "both", mutex.Attribute(metadata.AttributeTraceID, "of the call"))
	span := caller.SpanContext()
	for lock, want := range map[string]map[string]any{
		"traced":   {"trace_id": span.TraceID().String(), "span_id": span.SpanID().String()},
		"untraced": nil,
		"both":     {"trace_id": "of the call", "span_id": span.SpanID().String()},
	} {
		if got := w.attributes(lock); !maps.Equal(got, want) {
			t.Errorf("the record of %s has %v, want %v", lock, got, want)
		}
	}
}

func (w *world) attributes(lock string) map[string]any {
	inspector, err := inspect.New(w.server.Etcd(), inspect.Options{})
	if err != nil {
		w.Fatal(err)
	}
	state, err := inspector.Get(w.Context(), lock)
	if err != nil || state.Holder() == nil {
		w.Fatalf("%s: %v", lock, err)
	}
	return state.Holder().Attributes
}

func TestALossIsAFailedSpan(t *testing.T) {
	w := start(t)
	l := w.take(t.Context(), "a")
	w.server.Ask("a", "ann", "a secret reason")
	<-l.Asked()
	w.server.Extend("a", time.Minute)
	w.eventually(func() bool { return l.Extended() != nil })
	w.server.ForceUnlock("a", "a secret reason")
	hold := w.ended("lock hold", attribute.String("mutex.outcome", "lost"), attribute.String("mutex.reason", "forced"))
	if hold.Status().Code != codes.Error || !strings.Contains(hold.Status().Description, "forced") {
		t.Errorf("the status is %v", hold.Status())
	}
	var events []string
	for _, e := range hold.Events() {
		events = append(events, e.Name)
	}
	if !slices.Equal(events, []string{"asked to finish", "given more time"}) {
		t.Errorf("the events are %v", events)
	}
	if all := fmt.Sprint(hold.Attributes(), hold.Events(), hold.Status()); strings.Contains(all, "secret") {
		t.Errorf("what somebody wrote is in the trace: %s", all)
	}
	w.wantPoints("mutex.hold.duration", map[string]uint64{
		"mutex.group=a,mutex.outcome=lost,mutex.reason=forced": 1})
}

func TestOnlyAnErrorIsAFailedWait(t *testing.T) {
	w := start(t)
	w.take(t.Context(), "a")
	if _, err := w.locks.TryLock(t.Context(), "a"); err == nil {
		t.Fatal("it was free")
	}
	if s := w.ended("lock wait", attribute.String("mutex.result", "held")); s.Status().Code != codes.Unset {
		t.Errorf("the status is %v", s.Status())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := w.locks.Lock(ctx, "a"); err == nil {
		t.Fatal("it was free")
	}
	if s := w.ended("lock wait", attribute.String("mutex.result", "gave_up")); s.Status().Code != codes.Unset {
		t.Errorf("the status is %v", s.Status())
	}
}

func TestAHoldThatItsProcessNoLongerKeepsEndsAsASpan(t *testing.T) {
	w := start(t)
	w.take(t.Context(), "detached").Detach()
	w.ended("lock hold", attribute.String("mutex.outcome", "detached"))
	w.take(t.Context(), "closed")
	w.locks.Close()
	w.ended("lock hold", attribute.String("mutex.outcome", "closed"))
}
