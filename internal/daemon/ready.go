package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Readiness decides whether a program should get requests. The zero Readiness is ready.
type Readiness struct {
	mu       sync.Mutex
	checks   []check
	draining bool
}

type check struct {
	name string
	ask  func() error
}

// Add adds a condition. It is called at every probe and must be quick; the probe's answer shows its error.
func (r *Readiness) Add(name string, ask func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, check{name, ask})
}

// Drain ends readiness for good: the program is about to stop. It is a no-op for a nil Readiness.
func (r *Readiness) Drain() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Check returns why the program is not ready: the errors of all conditions that are not excluded.
func (r *Readiness) Check(excluded ...string) error {
	r.mu.Lock()
	checks, draining := r.checks, r.draining
	r.mu.Unlock()
	if draining {
		return errors.New("shutting down")
	}
	var problems []error
	for _, c := range checks {
		if slices.Contains(excluded, c.name) {
			continue
		}
		if err := c.ask(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(problems...)
}

// names returns the names of the conditions.
func (r *Readiness) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.checks {
		names = append(names, c.name)
	}
	return names
}

// ServeHTTP answers a probe with 200 or 503. The parameter exclude, which may be repeated, leaves out a condition.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	excluded := request.URL.Query()["exclude"]
	known := r.names()
	if slices.ContainsFunc(excluded, func(name string) bool { return !slices.Contains(known, name) }) {
		answer(w, http.StatusBadRequest, "exclude does not name a condition: there are "+strings.Join(known, ", "))
		return
	}
	if err := r.Check(excluded...); err != nil {
		answer(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
		return
	}
	answer(w, http.StatusOK, "ready")
}

func answer(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
