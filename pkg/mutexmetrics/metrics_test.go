package mutexmetrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexmetrics"
)

// world is a program with metrics in a bubble, where time passes at once.
type world struct {
	*testing.T
	server  *locktest.Server
	metrics *mutexmetrics.Metrics
	locks   *mutex.Client
}

func bubble(t *testing.T, o mutexmetrics.Options, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: locktest.NewInMemory(t), metrics: mutexmetrics.New(o)}
		w.locks = w.server.Client(mutex.Options{Hooks: w.metrics.Hooks()})
		test(w)
	})
}

func (w *world) take(name string, opts ...mutex.Option) *mutex.Lock {
	w.Helper()
	l, err := w.locks.TryLock(context.Background(), name, opts...)
	proctest.Must(w, err)
	return l
}

// want compares the samples of some metrics, whose kinds and help texts are left out.
func (w *world) want(samples string) {
	w.Helper()
	synctest.Wait()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.metrics)
	families, err := registry.Gather()
	proctest.Must(w, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			name := strings.Join(append([]string{f.GetName()}, labels...), " ")
			switch {
			case m.Histogram != nil:
				got[name+" count"], got[name+" sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			default:
				got[name] = m.Gauge.GetValue()
			}
		}
	}
	for line := range strings.Lines(strings.TrimSpace(samples)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndex(line, " ")
		if value, ok := got[line[:i]]; !ok || fmt.Sprint(value) != line[i+1:] {
			w.Errorf("%s: got %v (there: %v)", line, value, ok)
		}
	}
}

func TestMetricsCoverTheLifeOfLocks(t *testing.T) {
	bubble(t, mutexmetrics.Options{}, func(w *world) {
		w.want(`
			mutex_acquisitions_total acquired 0
			mutex_acquisitions_total held 0
			mutex_acquisitions_total gave_up 0
			mutex_acquisitions_total refused 0
			mutex_acquisitions_total error 0
			mutex_extensions_total extended 0
			mutex_lost_total time 0
			mutex_releases_total released 0
			mutex_wait_seconds count 0
			mutex_hold_seconds count 0
			mutex_asked_total 0
			mutex_given_time_total 0
			mutex_waiting 0
			mutex_held 0`)

		l := w.take("a", mutex.AutoUnlockAfter(time.Hour))
		w.locks.TryLock(context.Background(), "a")
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		go w.locks.Lock(ctx, "a")
		time.Sleep(30 * time.Second)
		w.server.AskToFinish("a", "ann", "the deploy waits")
		w.server.GiveMoreTime("a", time.Hour)
		w.want(`
			mutex_asked_total 1
			mutex_given_time_total 1
			mutex_extensions_total extended 0
			mutex_waiting 1
			mutex_held 1
			mutex_wait_seconds count 1`)
		time.Sleep(time.Minute)
		l.Alive(context.Background())
		l.Unlock()
		w.want(`
			mutex_acquisitions_total acquired 1
			mutex_acquisitions_total held 1
			mutex_acquisitions_total gave_up 1
			mutex_wait_seconds count 2
			mutex_wait_seconds sum 60
			mutex_hold_seconds count 1
			mutex_hold_seconds sum 90
			mutex_extensions_total extended 1
			mutex_releases_total released 1
			mutex_waiting 0
			mutex_held 0`)

		w.take("handed on").Detach() // which calls no hook, as closing the client
		w.take("kept")
		w.want(`mutex_held 1`)
		w.locks.Close()
		w.want(`mutex_held 0`)
	})
}

func TestMetricsReportWhyLocksAreLost(t *testing.T) {
	bubble(t, mutexmetrics.Options{}, func(w *world) {
		l := w.take("forced")
		w.server.ForceUnlock("forced", "wrong month")
		<-l.Lost()
		l = w.take("expired")
		time.Sleep(time.Second)
		w.server.Expire("expired")
		<-l.Lost()
		l.Unlock()
		l = w.take("time", mutex.AutoUnlockAfter(time.Minute))
		w.server.Disconnect()
		<-l.Lost()
		w.locks.TryLock(context.Background(), "error")
		w.server.Reconnect()
		l = w.take("noticed only when it is given back")
		w.server.ForceUnlock("noticed only when it is given back", "wrong year")
		l.Unlock()
		w.want(`
			mutex_lost_total forced 2
			mutex_lost_total auto_unlocked 1
			mutex_lost_total time 1
			mutex_lost_total removed 0
			mutex_acquisitions_total acquired 4
			mutex_acquisitions_total error 1
			mutex_releases_total lost 1
			mutex_hold_seconds count 4
			mutex_held 0`)
	})
}

func TestGroupsAreBounded(t *testing.T) {
	o := mutexmetrics.Options{MaxGroups: 2, Group: func(lock string) string {
		kind, _, _ := strings.Cut(lock, "/")
		return kind
	}}
	bubble(t, o, func(w *world) {
		for _, name := range []string{"invoices/1", "invoices/2", "bad\xff\n", "third", "fourth"} {
			if l, err := w.locks.TryLock(context.Background(), name); err == nil {
				l.Unlock()
			}
		}
		w.take("invoices/pool", mutex.Semaphore(2)).Unlock()
		w.want(`
			mutex_acquisitions_total invoices acquired 3
			mutex_releases_total invoices released 3
			mutex_acquisitions_total third acquired 1
			mutex_acquisitions_total other acquired 1
			mutex_hold_seconds other count 1`)
		if n := testutil.CollectAndCount(w.metrics, "mutex_held"); n != 3 {
			t.Errorf("%d groups, want 2 and the other", n)
		}
	})
}

func TestMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	for name, o := range map[string]mutexmetrics.Options{"plain": {},
		"with groups": {Group: func(lock string) string { return lock }}} {
		bubble(t, o, func(w *world) {
			w.take("a").Unlock()
			problems, err := testutil.CollectAndLint(w.metrics)
			if err != nil || len(problems) > 0 {
				t.Errorf("%s: %v, %v", name, problems, err)
			}
		})
	}
}
