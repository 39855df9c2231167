package dashboard_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestPageShowsItsFreshness(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	for age, says := range map[time.Duration]string{
		2 * time.Second:         "live, 2s ago",
		4900 * time.Millisecond: "live, 4s ago",
		5 * time.Second:         "5s behind",
		4 * time.Minute:         "4m behind",
	} {
		s.fresh.HeardAt = s.now.Add(-age)
		page := ok(t, d, "/")
		wantWords(t, page, says)
		if isStale := age >= 5*time.Second; isStale != strings.Contains(page, `class="stale"`) ||
			isStale != strings.Contains(page, `class="headline stale system"`) ||
			isStale != strings.Contains(ok(t, d, "/lock?name="+stuck), `icon.svg?state=stale`) {
			t.Errorf("%v after the last sign of life the page looks stale: %v", age, !isStale)
		}
	}
}

func TestSilenceWorsensNoState(t *testing.T) {
	for silence, want := range map[time.Duration][]string{ // of etcd, which gives a sign of life every two seconds
		2 * time.Second: {"alerting", "expired"}, 3 * time.Second: {"held", "alerting"},
		28 * time.Second: {"held", "alerting"},
	} {
		s := newScene()
		s.add(hold{name: "alert/passed", owner: "o", held: time.Hour, alert: -time.Second, unlock: time.Hour})
		s.add(hold{name: "unlock/passed", owner: "o", held: time.Hour, alert: -time.Minute, unlock: -time.Second})
		s.fresh.HeardAt = s.now.Add(-silence)
		d := s.dashboard(t)
		found, _ := fetch[[]lock](t, d, "/api/v1/locks?sort=name")
		for i, l := range found {
			if l["state"] != want[i] {
				t.Errorf("after %v of silence, %s is %s, want %s", silence, l["name"], l["state"], want[i])
			}
		}
		if page := words(ok(t, d, "/")); silence > 2*time.Second && strings.Contains(page, "; auto-unlock") {
			t.Errorf("after %v of silence, a lock is said to be auto-unlocked soon: %s", silence, page)
		}
	}
}

func TestUnloadedViewIsNotShownAsQuiet(t *testing.T) {
	s := newScene()
	s.fresh = protocol.Freshness{Cause: "connection refused"}
	d := s.dashboard(t)
	w := get(d, "/")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" ||
		w.Header().Get("Refresh") != "5" {
		t.Errorf("it answers %d with %v", w.Code, w.Header())
	}
	if w := get(d, "/api/v1/locks"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(),
		`"code":"not_loaded"`) {
		t.Errorf("the API answers %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/waiting", "/timeline", "/api/v1/timeline"} {
		if w := get(d, path); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s answers %d", path, w.Code)
		}
	}
	ok(t, d, "/help")
	wantWords(t, ok(t, d, "/status"), "no data", "watch broken: connection refused")

	s.fresh = protocol.Freshness{Synced: true, HeardAt: s.now, Revision: 1}
	ok(t, d, "/")
}

func TestUnchangedListIsNotSentAgain(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	tag := func(address string) string { return get(d, address).Header().Get("ETag") }
	for _, address := range []string{"/", "/?q=drm", "/?fragment=rows", "/api/v1/locks", "/api/v1/summary",
		"/api/v1/locks?fields=name", "/?group=owner"} {
		before := tag(address)
		s.now, s.fresh.HeardAt = s.now.Add(5*time.Second), s.fresh.HeardAt.Add(5*time.Second)
		w := get(d, address, "If-None-Match", before)
		if w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != before ||
			w.Header().Get("Mutexdash-Heard") == "" {
			t.Errorf("%s: nothing changed, and it answers %d", address, w.Code)
		}
	}
	if tag("/") != tag("/?fragment=rows") {
		t.Error("a page and what follows it have different versions")
	}
	seen := map[string]bool{}
	for _, address := range []string{"/", "/?q=drm", "/?sort=name", "/?limit=50", "/api/v1/locks",
		"/api/v1/locks?fields=name"} {
		if seen[tag(address)] {
			t.Errorf("%s has the version of another list", address)
		}
		seen[tag(address)] = true
	}
}

func TestChangesAreSent(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"a lock comes": func(s *scene) {
			s.add(hold{name: "new", held: time.Second, alert: time.Hour, unlock: time.Hour})
		},
		"a lock goes": func(s *scene) { s.locks = s.locks[1:] },
		"a lock is extended": func(s *scene) {
			s.add(hold{name: "drm/rotate-keys", held: time.Hour, alert: time.Hour, unlock: time.Hour})
		},
		"a lock says something else": func(s *scene) {
			s.locks = slices.Clone(s.locks)
			r := *s.locks[2]
			r.Revision++
			r.Purpose = "another"
			s.locks[2] = &r
		},
		"a state changes by itself": func(s *scene) {
			s.tick(2 * time.Minute)
		},
		"somebody waits": func(s *scene) { s.wait("drm/rotate-keys", "ops", 0) },
		"the picture becomes stale": func(s *scene) {
			s.now = s.now.Add(time.Minute)
		},
		"a lock turns expiring": func(s *scene) { s.tick(2 * time.Second) },
		"nobody takes a lock": func(s *scene) {
			s.unclaimed = []diagnosis.Unclaimed{{Name: settle, Since: s.now, Waiters: 3}}
		},
		"unlockers unlock those of the dead": func(s *scene) {
			s.unlockers = []metadata.Presence{unlocker("eu-1", s.unlockers[0].ArrivedAt)}
			s.unlockers[0].RemovalPolicy.Abandoned = metadata.AbandonedUnlock
		},
		"an unlocker holds back": func(s *scene) { s.unlockers[0].HeldBack = []string{"clock"} },
		"the unlocker dies":      func(s *scene) { s.unlockers = nil },
		"etcd raises an alarm":   func(s *scene) { s.alarm = "etcd is out of space" },
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			beating(s, "search/reindex", 46*time.Second)
			d := s.dashboard(t)
			before := get(d, "/").Header().Get("ETag")
			s.tick(time.Second)
			if w := get(d, "/", "If-None-Match", before); w.Code != http.StatusNotModified {
				t.Errorf("before that it answers %d", w.Code)
			}
			change(s)
			if w := get(d, "/", "If-None-Match", before); w.Code != http.StatusOK {
				t.Errorf("it answers %d", w.Code)
			}
		})
	}
}

func TestMetricsCountByRouteNotByName(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	get(d, "/lock?name=billing/invoice-run")
	get(d, "/lock?name=secret-name")
	get(d, "/secret-path")
	ask(d, "BREW", "/")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(d)
	want := `
# HELP mutexdash_http_requests_total Requests answered, by route.
# TYPE mutexdash_http_requests_total counter
mutexdash_http_requests_total{code="200",handler="/lock",method="GET"} 2
mutexdash_http_requests_total{code="404",handler="none",method="GET"} 1
mutexdash_http_requests_total{code="405",handler="none",method="other"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"mutexdash_http_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestETagsAreComparedWhole(t *testing.T) {
	d := newScene().dashboard(t)
	tag := get(d, "/").Header().Get("ETag")
	for _, c := range []struct {
		header string
		want   int
	}{
		{tag, http.StatusNotModified},
		{`"other", ` + tag, http.StatusNotModified},
		{strings.TrimPrefix(tag, "W/"), http.StatusNotModified},
		{"*", http.StatusNotModified},
		{`"other"`, http.StatusOK},
		{`"a` + tag + `b"`, http.StatusOK},
	} {
		if w := get(d, "/", "If-None-Match", c.header); w.Code != c.want {
			t.Errorf("If-None-Match: %s is answered with %d, want %d", c.header, w.Code, c.want)
		}
	}
}

// silent makes etcd stop answering, or answer only after this long.
func silent(s *scene, after time.Duration) func(*app.Config) {
	wait := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(after):
			return nil
		}
	}
	return func(c *app.Config) {
		of(c).get = func(ctx context.Context, lock string) (metadata.FullRecord, int64, error) {
			err := wait(ctx)
			return s.documents[lock], s.revision, err
		}
		of(c).history = func(ctx context.Context, _ int) ([]metadata.Ending, error) { return nil, wait(ctx) }
		of(c).ending = func(ctx context.Context, uuid string) (*metadata.Ending, error) {
			return s.endings[uuid], wait(ctx)
		}
	}
}

func TestLockPageDoesNotWaitForASilentEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d := s.dashboard(t, silent(s, time.Hour))
		for _, path := range []string{"/lock?name=" + stuck, "/lock?name=" + stuck + "&hold=" + uuid("ended"),
			"/lock?name=" + stuck} {
			start := time.Now()
			page := ok(t, d, path)
			if took := time.Since(start); took > 300*time.Millisecond {
				t.Errorf("%s takes %v", path, took)
			}
			wantWords(t, page, "etcd could not be read: no answer within 300ms. The rest is from the watch, as of "+
				"03:12:39 UTC; some keys are missing.", "Held by billing")
			time.Sleep(10 * time.Second) // what was asked for ends by itself
		}
		s.now = s.now.Add(time.Minute)
		start := time.Now()
		if get(d, "/lock?name=free"); time.Since(start) > 300*time.Millisecond {
			t.Errorf("with etcd known to be away, the page of a free lock takes %v", time.Since(start))
		}
		time.Sleep(10 * time.Second)
	})
}

func TestLockPageWaitsForASlowEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d, _ := operated(t, s, silent(s, 800*time.Millisecond))
		page := func(path string) string { return get(d, path, "X-Forwarded-User", "chief").Body.String() }
		wantWords(t, page("/lock?name="+stuck), "etcd could not be read: no answer within 300ms.", "Force unlock…")
		wantWords(t, page(unlockLink(s, stuck)), "What will happen")
		time.Sleep(5 * time.Second)
		if page := page("/lock?name=" + stuck); strings.Contains(page, "no answer within") ||
			!strings.Contains(page, "/mutexes/") {
			t.Error("the next page has no keys, but etcd answers in 0.8 s")
		}
		d = s.dashboard(t, silent(s, 800*time.Millisecond))
		s.locks = nil // the watch has not shown it yet
		wantWords(t, ok(t, d, "/lock?name="+stuck), "Held by billing")
	})
}

func TestPanicWhileReadingARecordDoesNotEndTheDashboard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, after := range map[string]time.Duration{"while a page waits": 0,
			"after the page has gone on": time.Second} {
			s := lived(t)
			d := s.dashboard(t, func(c *app.Config) {
				of(c).get = func(context.Context, string) (metadata.FullRecord, int64, error) {
					time.Sleep(after)
					panic("a record from hell")
				}
			})
			wantWords(t, ok(t, d, "/lock?name="+stuck), "etcd could not be read")
			time.Sleep(5 * time.Second)
			ok(t, d, "/")
			synctest.Wait()
			if log := s.log.String(); !strings.Contains(log, "a record from hell") {
				t.Errorf("%s: the log says nothing: %q", name, log)
			}
		}
	})
}

func TestTooManyConcurrentRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d := s.dashboard(t, func(c *app.Config) {
			of(c).get = func(context.Context, string) (metadata.FullRecord, int64, error) {
				time.Sleep(time.Second)
				return metadata.FullRecord{}, 0, errAway
			}
		})
		var busy sync.WaitGroup
		for range 256 {
			busy.Go(func() { ok(t, d, "/lock?name="+stuck) })
		}
		synctest.Wait()
		if w := get(d, "/help"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Errorf("while 256 wait for etcd, the answer is %d %v", w.Code, w.Header())
		}
		busy.Wait()
		ok(t, d, "/help")
		time.Sleep(time.Second) // what was asked for ends by itself
	})
}
