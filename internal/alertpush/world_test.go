package alertpush_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/alertpush"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// posted is an alert as it comes over the wire, with the time when it came.
type posted struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`

	at time.Time
}

// alertmanager keeps what it receives. It is a transport, so that the tests control time.
type alertmanager struct {
	mu       sync.Mutex
	got      []posted
	requests int
	answer   func() (status int, err error) // nil: it is well
}

func (a *alertmanager) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	if a.answer != nil {
		if status, err := a.answer(); err != nil {
			return nil, err
		} else if status != http.StatusOK {
			return &http.Response{StatusCode: status, Status: fmt.Sprint(status),
				Body: io.NopCloser(strings.NewReader("no\x00pe"))}, nil
		}
	}
	if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/api/v2/alerts") {
		return nil, fmt.Errorf("%s %s", req.Method, req.URL)
	}
	var alerts []posted
	if err := json.NewDecoder(req.Body).Decode(&alerts); err != nil {
		return nil, err
	}
	for _, p := range alerts {
		if p.EndsAt.Before(p.StartsAt) { // it refuses a request with such an alert, and says so
			return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request",
				Body: io.NopCloser(strings.NewReader("start time must be before end time"))}, nil
		}
		p.at = time.Now()
		a.got = append(a.got, p)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&bytes.Buffer{})}, nil
}

func (a *alertmanager) is(answer func() (int, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

func (a *alertmanager) asked() int {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests
}

// after lets time pass and returns what came since the last call.
func (a *alertmanager) after(d time.Duration) []posted {
	time.Sleep(d)
	return a.take()
}

// take returns what came since the last call.
func (a *alertmanager) take() []posted {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.got
	a.got = nil
	return got
}

// world is a view with an Alertmanager.
type world struct {
	*testing.T
	*alertmanager
	began time.Time

	mu      sync.Mutex
	records []*metadata.Record
	changed chan struct{}

	traces    func(lock, uuid string) (string, error)
	lookups   int
	log       bytes.Buffer
	pusher    *alertpush.Pusher
	transport http.RoundTripper
}

// inside is a test in a world of its own, with a clock of its own.
func inside(test func(*world)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(newWorld(t)) }) }
}

func inWorld(t *testing.T, test func(*world)) { inside(test)(t) }

func newWorld(t *testing.T) *world {
	return &world{T: t, alertmanager: &alertmanager{}, began: time.Now(), changed: make(chan struct{}),
		traces: func(string, string) (string, error) {
			return "main.go:12 in main.run\nmain.go:3 in main.main\n", nil
		}}
}

func (w *world) config() alertpush.Config {
	transport := w.transport
	if transport == nil {
		transport = w.alertmanager
	}
	return alertpush.Config{
		URLs: []string{"http://alertmanager:9093"}, Resend: time.Minute, Dashboard: "https://locks.example.org/",
		Policy: staleness.DefaultPolicy(), Removes: true,
		Locks: func() []*metadata.Record {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.records
		},
		Changed: func() <-chan struct{} {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.changed
		},
		Clock: func() time.Duration { return time.Since(w.began) },
		Backtrace: func(_ context.Context, lock, uuid string) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lookups++
			return w.traces(lock, uuid)
		},
		Excluded:  func(string) bool { return false },
		Deadlocks: func() []deadlock.Cycle { return nil },
		Unclaimed: func() ([]unclaimed.Lock, time.Duration) { return nil, 0 },
		Client:    func() *http.Client { return &http.Client{Transport: transport} },
		Log:       zerolog.New(&w.log),
	}
}

// readsTraces says what reading a backtrace gives from now on.
func (w *world) readsTraces(f func(lock, uuid string) (string, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traces = f
	w.lookups = 0
}

// start runs a pusher, and returns what ends it.
func (w *world) start(c alertpush.Config) (stop func()) {
	w.Helper()
	p := alertpush.New(c)
	w.pusher = p
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
}

// change changes what there is, and says so.
func (w *world) change(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

// holds makes these the locks that are held.
func (w *world) holds(locks ...*metadata.Record) { // the same slice is the same picture
	w.change(func() { w.records = locks })
}

// lock is one that alerts after a minute and is to be removed after ten.
func (w *world) lock(name string, change ...func(*metadata.Record)) *metadata.Record {
	now := time.Now()
	r := &metadata.Record{
		Name: name, UUID: "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", Token: 7,
		Holder:   metadata.Holder{Owner: "billing", Hostname: "host-1", Purpose: "nightly invoices"},
		LockedAt: now, AlertAt: now.Add(time.Minute), AutoUnlockAt: now.Add(10 * time.Minute),
		Seen: metadata.Seen{First: time.Since(w.began), Changed: time.Since(w.began)},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// is returns an alert in short, and for how long it lasts.
func (p posted) is() string {
	return fmt.Sprintf("%s %s %s +%v", p.Labels["severity"], p.Labels["alertname"], p.Labels["lock"],
		p.EndsAt.Sub(p.at))
}

func (w *world) wants(got []posted, want ...string) {
	w.Helper()
	var is []string
	for _, p := range got {
		is = append(is, p.is())
	}
	if strings.Join(is, "\n") != strings.Join(want, "\n") {
		w.Errorf("got\n  %s\nwant\n  %s", strings.Join(is, "\n  "), strings.Join(want, "\n  "))
	}
}

var errDown = errors.New("connection refused")

// gather is one scrape, which `promtool check metrics` accepts.
func (w *world) gather() map[string]*dto.MetricFamily {
	w.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.pusher)
	families, err := registry.Gather()
	if err != nil || len(families) != 4 {
		w.Fatalf("%d metrics, %v", len(families), err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		w.Error(problems, err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}
