package dashboard_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// crowd is a scene with n locks, one in a thousand alerting.
func crowd(n int) *scene {
	s := newScene()
	s.replaced = true
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		alert := time.Duration(random.IntN(7200)) * time.Second
		if i%1000 == 0 {
			alert = -alert
		}
		name := fmt.Sprintf("service-%02d/tenant-%06d/nightly", i%50, i)
		s.locks = append(s.locks, &metadata.Record{
			Name: name, UUID: uuid(name),
			Identity: metadata.Identity{Owner: fmt.Sprintf("service-%02d", i%50),
				Hostname: fmt.Sprintf("service-%02d-7f9c-%d", i%50, i), PID: int64(i), Purpose: "nightly run"},
			LockedAt: s.now.Add(-time.Hour), AlertAt: s.now.Add(alert),
			AutoUnlockAt: s.now.Add(alert + time.Hour),
			Token:        int64(i + 1), Revision: int64(i + 1), DeadlineRevision: int64(i + 1),
		})
	}
	slices.SortFunc(s.locks, func(a, b *metadata.Record) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// request is a viewer's request, and what happens before it.
type request struct {
	name string
	ask  func(s *scene, i int) (address string)
}

// requests are first requests, without cached parts.
func requests() []request {
	return []request{
		{"cached", func(*scene, int) string { return "/" }},
		{"a new search", func(_ *scene, i int) string { return fmt.Sprintf("/?q=tenant-0+-x%d", i) }},
		{"sorted by host", func(s *scene, i int) string {
			s.change1(i)
			return "/?sort=host"
		}},
		{"one lock changed", func(s *scene, i int) string {
			s.change1(i)
			return "/"
		}},
	}
}

// clock lets the clock of the view go on with the time of the scene.
func (s *scene) clock() func(*app.Config) {
	began := s.now
	return func(c *app.Config) {
		of(c).clock = func() time.Duration { return time.Hour + s.now.Sub(began) }
	}
}

// tick advances time, so that there is a new snapshot.
func (s *scene) tick(d time.Duration) {
	s.now = s.now.Add(d)
	s.fresh.HeardAt = s.now
}

// change1 changes one lock, as if its holder extended.
func (s *scene) change1(i int) {
	s.tick(2 * time.Second)
	s.locks = slices.Clone(s.locks)
	at := i * 1009 % len(s.locks)
	changed := *s.locks[at]
	s.revision++
	changed.Revision, changed.AutoUnlockAt = s.revision, changed.AutoUnlockAt.Add(time.Minute)
	s.locks[at] = &changed
}

// BenchmarkList measures a viewer's waiting time, absolute and as a share of the budget, which must be below 1 on an
// idle machine.
func BenchmarkList(b *testing.B) {
	for _, c := range []struct {
		locks  int
		budget time.Duration // of p95
	}{{10_000, 50 * time.Millisecond}, {100_000, 300 * time.Millisecond}} {
		s := crowd(c.locks)
		d := s.dashboard(b, s.clock())
		ok(b, d, "/")
		etag := get(d, "/").Header().Get("ETag")
		run := func(name string, budget time.Duration, ask func(i int) (address, etag string)) {
			b.Run(fmt.Sprintf("%s/locks=%d", name, c.locks), func(b *testing.B) { measure(b, d, budget, ask) })
		}
		run("unchanged", time.Millisecond, func(int) (string, string) { return "/", etag })
		for _, r := range requests() {
			run(r.name, c.budget, func(i int) (string, string) {
				address := r.ask(s, i)
				s.view() // what this costs is not the dashboard's
				return address, ""
			})
		}
	}
}

// measure reports the p95 of responses, absolute and as a share of the budget.
func measure(b *testing.B, d http.Handler, budget time.Duration, ask func(i int) (address, etag string)) {
	took := make([]time.Duration, 0, b.N)
	for i := 0; b.Loop(); i++ {
		address, etag := ask(i)
		start := time.Now()
		if w := get(d, address, "If-None-Match", etag); w.Code != http.StatusOK && w.Code != http.StatusNotModified {
			b.Fatal(w.Code)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	p95 := took[len(took)*95/100]
	b.ReportMetric(float64(p95.Microseconds())/1000, "p95-ms")
	b.ReportMetric(float64(p95)/float64(budget), "of-budget")
}
