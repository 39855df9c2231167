package mutexmetrics

import (
	"context"
	"errors"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// exemplars finds the exemplars of waits, and keeps those of holds until they end: the end of a hold has no context of
// the call that took the lock.
type exemplars struct {
	of func(ctx context.Context) prometheus.Labels

	mu    sync.Mutex
	holds map[*mutex.Lock]prometheus.Labels
}

// labels returns those of an exemplar for what happened in ctx; nil if there is none.
func (e *exemplars) labels(ctx context.Context) prometheus.Labels {
	if e.of == nil {
		return nil
	}
	if labels := e.of(ctx); sound(labels) {
		return labels
	}
	return nil
}

// keep remembers the exemplar of a hold until take. Who was told of its loss already took nothing, and will not come
// again; no hook reports a hold that is detached, or whose client is closed.
func (e *exemplars) keep(l *mutex.Lock, labels prometheus.Labels) {
	if labels == nil {
		return
	}
	e.mu.Lock()
	e.holds[l] = labels
	e.mu.Unlock()
	if l.Context().Err() != nil {
		e.take(l)
		return
	}
	context.AfterFunc(l.Context(), func() {
		cause := context.Cause(l.Context())
		if errors.Is(cause, mutex.ErrDetached) || errors.Is(cause, mutex.ErrClosed) {
			e.take(l)
		}
	})
}

// take returns the exemplar of a hold, once.
func (e *exemplars) take(l *mutex.Lock) prometheus.Labels {
	e.mu.Lock()
	defer e.mu.Unlock()
	labels := e.holds[l]
	delete(e.holds, l)
	return labels
}

// observe adds a duration to a histogram, with an exemplar unless labels is nil.
func observe(to prometheus.Observer, took time.Duration, labels prometheus.Labels) {
	if with, can := to.(prometheus.ExemplarObserver); can && labels != nil {
		with.ObserveWithExemplar(took.Seconds(), labels)
		return
	}
	to.Observe(took.Seconds())
}

// sound reports whether the labels are an exemplar. The library panics for those that are not.
func sound(labels prometheus.Labels) bool {
	runes := 0
	for name, value := range labels {
		if !model.LegacyValidation.IsValidLabelName(name) || !utf8.ValidString(value) {
			return false
		}
		runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	return len(labels) > 0 && runes <= prometheus.ExemplarMaxRunes
}
