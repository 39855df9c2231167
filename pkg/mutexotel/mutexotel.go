package mutexotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// ScopeName is the name under which spans and metrics are reported.
const ScopeName = "github.com/clustermutex/unlocker/pkg/mutexotel"

// The attributes of spans and metrics.
const (
	attributeLock    = attribute.Key("mutex.lock")
	attributeGroup   = attribute.Key("mutex.group")
	attributeResult  = attribute.Key("mutex.result")
	attributeOutcome = attribute.Key("mutex.outcome")
	attributeReason  = attribute.Key("mutex.reason")
	attributeOwner   = attribute.Key("mutex.owner")
	attributeToken   = attribute.Key("mutex.token")
	attributeUUID    = attribute.Key("mutex.uuid")
)

// Options change where spans and metrics go. The zero Options are usable.
type Options struct {
	// Tracers and Meters make the tracer and the instruments; the global ones of package otel if nil.
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider

	// Owner names the holder in spans: use the Owner of the client's options. If empty, spans have no owner.
	Owner string

	// Group returns the metric attribute mutex.group for a lock's name, with few values; for a share such as "pool#2"
	// it gets the name "pool". It must be safe for concurrent use. If nil, there is no such attribute.
	Group func(lock string) string
}

// Telemetry makes spans and metrics from what hooks report. It is safe for concurrent use, also by several clients.
type Telemetry struct {
	o          Options
	tracer     trace.Tracer
	wait, hold metric.Float64Histogram

	mu    sync.Mutex
	holds map[*mutex.Lock]trace.Span
}

// New returns the telemetry. Pass its [Telemetry.Hooks] to the clients. It fails if a meter refuses an instrument.
func New(o Options) (*Telemetry, error) {
	if o.Tracers == nil {
		o.Tracers = otel.GetTracerProvider()
	}
	if o.Meters == nil {
		o.Meters = otel.GetMeterProvider()
	}
	meter := o.Meters.Meter(ScopeName)
	wait, err := meter.Float64Histogram("mutex.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time until a lock was taken or its caller went on without it."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600))
	if err != nil {
		return nil, err
	}
	hold, err := meter.Float64Histogram("mutex.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from taking a lock until it was released or lost."),
		metric.WithExplicitBucketBoundaries(.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4*3600, 24*3600))
	if err != nil {
		return nil, err
	}
	return &Telemetry{o: o, tracer: o.Tracers.Tracer(ScopeName), wait: wait, hold: hold,
		holds: map[*mutex.Lock]trace.Span{}}, nil
}

// TraceAttributes returns options that write the ids of the trace and span of ctx into the record of a lock, as the
// attributes trace_id and span_id; none if ctx has no span. It is meant for [mutex.Options].ContextOptions.
func TraceAttributes(ctx context.Context) []mutex.Option {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	return []mutex.Option{mutex.Attribute(metadata.AttributeTraceID, span.TraceID().String()),
		mutex.Attribute(metadata.AttributeSpanID, span.SpanID().String())}
}

// Hooks returns hooks that make the spans and metrics. Combine them with others: telemetry.Hooks().And(others).
func (t *Telemetry) Hooks() mutex.Hooks {
	return mutex.Hooks{
		AcquireEnded: t.acquired, ReleaseEnded: t.released,
		Lost:            func(e mutex.Lost) { t.recordHold(e.Lock, string(mutex.ResultLost), e.Reason, e.HoldTime) },
		FinishRequested: func(e mutex.FinishRequested) { t.addEvent(e.Lock, "asked to finish") },
		MoreTimeGiven:   func(e mutex.MoreTimeGiven) { t.addEvent(e.Lock, "given more time") },
	}
}

func (t *Telemetry) acquired(e mutex.AcquireEnded) {
	now := time.Now()
	result := attributeResult.String(string(e.Result))
	ctx, span := t.tracer.Start(e.Context, "lock wait", trace.WithTimestamp(now.Add(-e.WaitTime)),
		trace.WithAttributes(attributeLock.String(e.Name), result))
	if e.Result == mutex.ResultError {
		span.RecordError(e.Err)
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
	t.wait.Record(ctx, e.WaitTime.Seconds(), metric.WithAttributes(t.withGroup(e.Name, result)...))
	if e.Lock != nil {
		t.beginSpan(e.Context, e.Lock, now)
	}
}

// beginSpan starts the span of a hold. A hook ends it, or the end of the hold's context if this process no longer keeps
// the lock, which no hook reports.
func (t *Telemetry) beginSpan(ctx context.Context, l *mutex.Lock, now time.Time) {
	attributes := []attribute.KeyValue{attributeLock.String(l.Name()), attributeToken.Int64(l.Token()),
		attributeUUID.String(l.UUID())}
	if t.o.Owner != "" {
		attributes = append(attributes, attributeOwner.String(t.o.Owner))
	}
	_, span := t.tracer.Start(ctx, "lock hold", trace.WithTimestamp(now), trace.WithAttributes(attributes...))
	t.mu.Lock()
	t.holds[l] = span
	t.mu.Unlock()
	context.AfterFunc(l.Context(), func() {
		switch context.Cause(l.Context()) {
		case mutex.ErrDetached:
			endSpan(t.takeSpan(l), "detached", "")
		case mutex.ErrClosed:
			endSpan(t.takeSpan(l), "closed", "")
		}
	})
}

// takeSpan returns the span of a hold and forgets it; nil if the hold was adopted.
func (t *Telemetry) takeSpan(l *mutex.Lock) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	span := t.holds[l]
	delete(t.holds, l)
	return span
}

// endSpan ends the span of a hold, if there is one, and returns a context for the measurement.
func endSpan(span trace.Span, outcome string, reason mutex.LostReason) context.Context {
	ctx := context.Background()
	if span == nil {
		return ctx
	}
	span.SetAttributes(endAttributes(outcome, reason)...)
	if reason != "" {
		span.SetStatus(codes.Error, "the lock was lost: "+string(reason))
	}
	span.End()
	return trace.ContextWithSpan(ctx, span)
}

func (t *Telemetry) released(e mutex.ReleaseEnded) {
	var reason mutex.LostReason
	if lost, isLost := errors.AsType[*mutex.LostError](e.Err); isLost {
		reason = lost.Reason()
	}
	t.recordHold(e.Lock, string(e.Result), reason, e.HoldTime)
}

func (t *Telemetry) recordHold(l *mutex.Lock, outcome string, reason mutex.LostReason, after time.Duration) {
	ctx := endSpan(t.takeSpan(l), outcome, reason)
	t.hold.Record(ctx, after.Seconds(),
		metric.WithAttributes(t.withGroup(l.Name(), endAttributes(outcome, reason)...)...))
}

func endAttributes(outcome string, reason mutex.LostReason) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attributeOutcome.String(outcome)}
	if reason != "" {
		attributes = append(attributes, attributeReason.String(string(reason)))
	}
	return attributes
}

// addEvent adds an event to the span of a hold. What operators wrote about it is in the audit trail, not in a trace.
func (t *Telemetry) addEvent(l *mutex.Lock, name string) {
	t.mu.Lock()
	span := t.holds[l]
	t.mu.Unlock()
	if span != nil {
		span.AddEvent(name)
	}
}

// withGroup adds the group of the lock to the attributes of a measurement. A share is in the group of the whole lock.
func (t *Telemetry) withGroup(name string, attributes ...attribute.KeyValue) []attribute.KeyValue {
	if t.o.Group == nil {
		return attributes
	}
	if lock, _, isShare := metadata.ParseShare(name); isShare {
		name = lock
	}
	return append(attributes, attributeGroup.String(t.o.Group(name)))
}
