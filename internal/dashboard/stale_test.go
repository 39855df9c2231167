package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// silent makes etcd stop answering, or answer only after this long.
func silent(s *scene, after time.Duration) func(*setup.Config) {
	wait := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(after):
			return nil
		}
	}
	return func(c *setup.Config) {
		of(c).get = func(ctx context.Context, lock string) (metadata.Document, int64, error) {
			err := wait(ctx)
			return s.documents[lock], s.revision, err
		}
		of(c).history = func(ctx context.Context, _ int) ([]metadata.Ending, error) { return nil, wait(ctx) }
		of(c).ending = func(ctx context.Context, uuid string) (*metadata.Ending, error) {
			return s.endings[uuid],
				wait(ctx)
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
			wantWords(t, page, "Not read from etcd: no answer within 300ms. What follows is what the watch showed, "+
				"as of 03:12:39 UTC; keys are missing.", "Held by billing")
			time.Sleep(10 * time.Second) // what was asked for ends by itself
		}
	})
}

func TestLockPageWaitsForAnEtcdThatIsOnlySlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d := s.dashboard(t, silent(s, 800*time.Millisecond))
		wantWords(t, ok(t, d, "/lock?name="+stuck), "Not read from etcd: no answer within 300ms.")
		time.Sleep(5 * time.Second)
		if page := ok(t, d, "/lock?name="+stuck); strings.Contains(page, "no answer within") ||
			!strings.Contains(page, "/mutexes/") {
			t.Error("the page that follows has no keys, although etcd answers in 0.8 s")
		}
	})
}

func TestLockThatTheWatchHasNotShownIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d := s.dashboard(t, silent(s, 800*time.Millisecond))
		s.locks = nil
		wantWords(t, ok(t, d, "/lock?name="+stuck), "Held by billing")
	})
}

func TestForceUnlockStaysInReachWhenEtcdIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d, _ := operated(t, s, silent(s, 800*time.Millisecond))
		page := get(d, "/lock?name="+stuck, "X-Forwarded-User", "chief").Body.String()
		wantWords(t, page, "no answer within", "Force unlock…")
		wantWords(t, get(d, "/unlock?name="+stuck+"&hold="+uuid(stuck), "X-Forwarded-User", "chief").Body.String(),
			"What will happen")
	})
}

func TestARecordThatBreaksAReadDoesNotEndTheDashboard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, after := range map[string]time.Duration{"while a page waits": 0,
			"after the page has gone on": time.Second} {
			s := lived(t)
			d := s.dashboard(t, func(c *setup.Config) {
				of(c).get = func(context.Context, string) (metadata.Document, int64, error) {
					time.Sleep(after)
					panic("a record from hell")
				}
			})
			w := get(d, "/lock?name="+stuck)
			if want := map[time.Duration]int{0: 500, time.Second: 200}[after]; w.Code != want {
				t.Errorf("%s: the page answers %d, want %d", name, w.Code, want)
			}
			time.Sleep(5 * time.Second)
			ok(t, d, "/")
			synctest.Wait()
			if log := s.log.String(); !strings.Contains(log, "a record from hell") {
				t.Errorf("%s: the log says nothing: %q", name, log)
			}
		}
	})
}

func TestTooManyAtOnceAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lived(t)
		d := s.dashboard(t, func(c *setup.Config) {
			of(c).get = func(context.Context, string) (metadata.Document, int64, error) {
				time.Sleep(time.Second)
				return metadata.Document{}, 0, errAway
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
