package mutexotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexotel"
)

// world is a program with telemetry in a bubble, where time passes at once.
type world struct {
	*testing.T
	server *locktest.Server
	locks  *mutex.Client
	spans  *tracetest.SpanRecorder
	tracer *trace.TracerProvider
	reader *metric.ManualReader
}

func bubble(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: locktest.NewInMemory(t), spans: tracetest.NewSpanRecorder(),
			reader: metric.NewManualReader()}
		w.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(w.spans))
		telemetry, err := mutexotel.New(mutexotel.Options{
			Tracers: w.tracer, Meters: metric.NewMeterProvider(metric.WithReader(w.reader)), Owner: "billing",
			Group: func(lock string) string { kind, _, _ := strings.Cut(lock, "/"); return kind },
		})
		if err != nil {
			t.Fatal(err)
		}
		w.locks = w.server.Client(mutex.Options{Owner: "billing", Hooks: telemetry.Hooks(),
			ContextOptions: mutexotel.TraceAttributes})
		test(w)
	})
}

func (w *world) take(ctx context.Context, name string, opts ...mutex.Option) *mutex.Lock {
	w.Helper()
	l, err := w.locks.Lock(ctx, name, opts...)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// ended are the spans of this name with these attributes that have ended. There has to be one.
func (w *world) ended(name string, attributes ...attribute.KeyValue) []trace.ReadOnlySpan {
	w.Helper()
	synctest.Wait()
	spans := slices.DeleteFunc(w.spans.Ended(), func(s trace.ReadOnlySpan) bool {
		return s.Name() != name || slices.ContainsFunc(attributes, func(want attribute.KeyValue) bool {
			return !slices.Contains(s.Attributes(), want)
		})
	})
	if len(spans) == 0 {
		w.Fatalf("no %s with %v", name, attributes)
	}
	return spans
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
				if m.Unit != "s" || scope.Scope.Name != mutexotel.ScopeName {
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

func TestWaitAndHoldAreSpansOfTheCaller(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, caller := w.tracer.Tracer("test").Start(w.Context(), "monthly run")
		l := w.take(ctx, "invoices/7")
		waiting := make(chan *mutex.Lock)
		go func() { waiting <- w.take(ctx, "invoices/7") }()
		time.Sleep(time.Minute)
		before := time.Now()
		if err := l.Unlock(); err != nil {
			w.Fatal(err)
		}
		(<-waiting).Unlock()
		caller.End()

		waits := w.ended("lock wait")
		hold := w.ended("lock hold", attribute.Int64("mutex.token", l.Token()))[0]
		for _, s := range append(waits, hold) {
			if s.Parent().SpanID() != caller.SpanContext().SpanID() ||
				s.SpanContext().TraceID() != caller.SpanContext().TraceID() {
				w.Errorf("%s is not a child of the caller's span", s.Name())
			}
		}
		want := attribute.NewSet(attribute.String("mutex.lock", "invoices/7"),
			attribute.String("mutex.owner", "billing"), attribute.String("mutex.uuid", l.UUID()),
			attribute.Int64("mutex.token", l.Token()), attribute.String("mutex.outcome", "released"))
		if got := attribute.NewSet(hold.Attributes()...); !got.Equals(&want) {
			w.Errorf("the hold has %v", hold.Attributes())
		}
		if hold.Status().Code != codes.Unset {
			w.Errorf("the hold has the status %v", hold.Status())
		}
		if len(waits) != 2 || !waits[1].StartTime().Before(before) || waits[1].EndTime().Before(before) ||
			hold.EndTime().Before(before) {
			w.Errorf("the hold ended at %v, unlocked at %v; the waits are %v", hold.EndTime(), before, waits)
		}
		w.wantPoints("mutex.wait.duration", map[string]uint64{"mutex.group=invoices,mutex.result=acquired": 2})
		w.wantPoints("mutex.hold.duration", map[string]uint64{"mutex.group=invoices,mutex.outcome=released": 2})
	})
}

func TestMeasurementHasAnExemplar(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, caller := w.tracer.Tracer("test").Start(w.Context(), "monthly run")
		w.take(ctx, "a").Unlock()
		for name, spans := range map[string][]trace.ReadOnlySpan{"mutex.wait.duration": w.ended("lock wait"),
			"mutex.hold.duration": w.ended("lock hold")} {
			for attributes, p := range w.points(name) {
				id, trace := spans[0].SpanContext().SpanID(), caller.SpanContext().TraceID()
				if len(p.Exemplars) != 1 || string(p.Exemplars[0].SpanID) != string(id[:]) ||
					string(p.Exemplars[0].TraceID) != string(trace[:]) {
					w.Errorf("%s %s has the exemplars %v", name, attributes, p.Exemplars)
				}
			}
		}
	})
}

func TestRecordHasTheTrace(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, caller := w.tracer.Tracer("test").Start(w.Context(), "monthly run")
		w.take(ctx, "traced")
		w.take(w.Context(), "untraced")
		w.take(ctx, "both", mutex.Attribute(metadata.AttributeTraceID, "of the call"))
		span := caller.SpanContext()
		for lock, want := range map[string]map[string]any{
			"traced":   {"trace_id": span.TraceID().String(), "span_id": span.SpanID().String()},
			"untraced": nil,
			"both":     {"trace_id": "of the call", "span_id": span.SpanID().String()},
		} {
			if got := w.server.AssertHeld(lock).Attributes; !maps.Equal(got, want) {
				w.Errorf("the record of %s has %v, want %v", lock, got, want)
			}
		}
	})
}

func TestLossIsAFailedSpan(t *testing.T) {
	bubble(t, func(w *world) {
		l := w.take(w.Context(), "a")
		time.Sleep(time.Second) // it is watched now
		w.server.AskToFinish("a", "ann", "a secret reason")
		w.server.GiveMoreTime("a", time.Minute)
		synctest.Wait()
		w.server.ForceUnlock("a", "a secret reason")
		<-l.Lost()
		hold := w.ended("lock hold", attribute.String("mutex.outcome", "lost"),
			attribute.String("mutex.reason", "forced"))[0]
		if hold.Status().Code != codes.Error || !strings.Contains(hold.Status().Description, "forced") {
			w.Errorf("the status is %v", hold.Status())
		}
		var events []string
		for _, e := range hold.Events() {
			events = append(events, e.Name)
		}
		if !slices.Equal(events, []string{"asked to finish", "given more time"}) {
			w.Errorf("the events are %v", events)
		}
		if all := fmt.Sprint(hold.Attributes(), hold.Events(), hold.Status()); strings.Contains(all, "secret") {
			w.Errorf("user-provided text is in the trace: %s", all)
		}
		w.wantPoints("mutex.hold.duration", map[string]uint64{
			"mutex.group=a,mutex.outcome=lost,mutex.reason=forced": 1})
	})
}

func TestOnlyErrorsAreFailedWaits(t *testing.T) {
	bubble(t, func(w *world) {
		w.take(w.Context(), "a")
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(errors.New("enough"))
		_, held := w.locks.TryLock(w.Context(), "a")
		_, gaveUp := w.locks.Lock(ctx, "a")
		for result, err := range map[string]error{"held": held, "gave_up": gaveUp} {
			s := w.ended("lock wait", attribute.String("mutex.result", result))[0]
			if err == nil || s.Status().Code != codes.Unset {
				w.Errorf("%s: the status is %v, %v", result, s.Status(), err)
			}
		}
	})
}

func TestDetachedHoldEndsItsSpan(t *testing.T) {
	bubble(t, func(w *world) {
		w.take(w.Context(), "detached").Detach()
		w.ended("lock hold", attribute.String("mutex.outcome", "detached"))
		w.take(w.Context(), "closed")
		w.locks.Close()
		w.ended("lock hold", attribute.String("mutex.outcome", "closed"))
	})
}
