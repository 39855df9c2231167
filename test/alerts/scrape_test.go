//go:build alerts

package alerts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The worst night: a hundred thousand locks, each of which alerts. What Prometheus has to take in is bounded, and
// nothing of it is hidden. Not parallel, because it looks at the time.
func TestAScrapeStaysSmallAndFastWithAHundredThousandLocks(t *testing.T) {
	const locks, series = 100_000, 1000
	w := newWorld(t)
	w.crowd(locks)
	u := w.unlocker()
	ops := w.dashboard()
	proctest.Answers(t, "http://"+ops+"/metrics", http.StatusOK, "\nmutexdash_etcd_up 1\n")
	proctest.Answers(t, "http://"+u.addr+"/metrics", http.StatusOK,
		fmt.Sprintf(`unlocker_locks{state="alerting"} %d`, locks),
		fmt.Sprintf("unlocker_lock_series_dropped %d", locks-series))
	for of, address := range map[string]string{"unlocker": u.addr, "mutexdash": ops} {
		body, took := scrape(t, address)
		t.Logf("%s: %d bytes, in %v", of, len(body), took)
		if len(body) > 1_000_000 {
			t.Errorf("a scrape of %s has %d bytes", of, len(body))
		}
		// The fastest tells what a scrape costs; the others, what else this machine did.
		if took[0] > 100*time.Millisecond {
			t.Errorf("a scrape of %s takes %v", of, took)
		}
		if n := strings.Count(body, "\nunlocker_lock_alert_at_timestamp_seconds{"); of == "unlocker" && n != series {
			t.Errorf("%d locks have series of their own, want %d", n, series)
		}
	}
}

// scrape scrapes several times, as Prometheus does, and returns the durations, the fastest first.
func scrape(t *testing.T, address string) (body string, took []time.Duration) {
	t.Helper()
	for range 7 {
		began := time.Now()
		var err error
		if body, err = get("http://" + address + "/metrics"); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began).Round(time.Millisecond/10))
	}
	slices.Sort(took)
	return body, took
}

// batch is how many locks one transaction writes: a record is four keys, and etcd allows 128 operations.
const batch = 32

// crowd writes this many records of locks that alert and may not be removed yet.
func (w *world) crowd(locks int) {
	w.Helper()
	const writers = 8
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for first := writer * batch; first < locks; first += writers * batch {
				var ops []clientv3.Op
				for i := first; i < min(first+batch, locks); i++ {
					ops = append(ops, w.puts(fmt.Sprintf("service-%02d/tenant-%06d", i%50, i), overdue(i))...)
				}
				if _, err := w.client.Txn(w.Context()).Then(ops...).Commit(); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

func overdue(i int) lockrecord.Draft {
	now := time.Now()
	return lockrecord.Draft{
		UUID: fmt.Sprintf("4be0643f-1d98-4573-b7cd-%012x", i),
		Identity: metadata.Identity{Owner: fmt.Sprintf("service-%02d", i%50), Hostname: fmt.Sprintf("host-%03d", i%400),
			Purpose: "nightly invoices"}, LockedAt: now.Add(-time.Hour),
		AlertAt: now.Add(-time.Duration(i+1) * time.Millisecond), AutoUnlockAt: now.Add(time.Hour),
	}
}
