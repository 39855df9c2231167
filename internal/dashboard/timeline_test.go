package dashboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// watched is the busy night after most of an hour in which the dashboard saw a release, a waiter that got its lock, and
// a gap.
func watched(t testing.TB) (*scene, *dashboard.Dashboard) {
	t.Helper()
	s := lived(t)
	d := s.dashboard(t)
	ok(t, d, "/history") // it watches from here on
	first := s.waiter(stuck, "reports", "reports-0", 9)
	s.tick(20 * time.Minute)
	s.relists++
	ok(t, d, "/history")
	s.tick(15 * time.Minute)
	d.Took("", first)
	e := s.over("catalog/sync/us", metadata.EndedReleased, "", "", 25*time.Minute, 0)
	r := metadata.Record{Name: e.Lock, UUID: e.UUID, Token: e.Token, Holder: e.Holder, LockedAt: e.LockedAt.Time,
		AlertAt: e.AlertAt.Time, AutoUnlockAt: e.AutoUnlockAt.Time}
	d.Ended(&r, nil)
	s.tick(5 * time.Minute)
	return s, d
}

func TestTheTimelineSaysWhoHeldAndWhoWaited(t *testing.T) {
	_, d := watched(t)
	page := ok(t, d, "/timeline?window=1h")
	for _, says := range []string{
		"<title>billing on billing-1:3 held it for 25m, from 03:22:41 to 03:47:41 UTC, past its alert at 03:32:41<",
		"<title>billing on billing-7f9c:17 holds it since 02:50:41 UTC, for 1h 2m, past its alert at 02:58:41</title>",
		"<title>reports on reports-0:9 waited for 35m, from 03:12:41 to 03:47:41 UTC</title>",
	} {
		if !strings.Contains(page, says) {
			t.Errorf("the page does not have %s", says)
		}
	}
	wantWords(t, page, "15 min 1 h 6 h 24 h UTC", "reports on reports-0:9 waited, got it 35m 03:12:41 03:47:41",
		"not watched: only what lasts or etcd recorded")
	const forced = "and was force-unlocked"
	if strings.Contains(page, forced) || !strings.Contains(ok(t, d, "/timeline?window=6h"), forced) {
		t.Error("what etcd recorded before is not in the window that reaches there")
	}
}

func TestTheTimelineOfALockHasALaneForEachProcess(t *testing.T) {
	_, d := watched(t)
	wantWords(t, ok(t, d, "/lock?name="+stuck), "Timeline 15 min 1 h 6 h 24 h CSV UTC",
		"billing on billing-7f9c:17 holds it",
		"catalog on catalog-0:1 waits")
	if page := ok(t, d, "/lock?name="+stuck+"&window=24h"); !strings.Contains(page, "and was force-unlocked</title>") {
		t.Error("the forced end is not drawn")
	}
	wantWords(t, ok(t, d, "/lock?name=catalog/sync/us"), "billing on billing-1:3", "released 25m 03:22:41 03:47:41")
}

func TestTheTimelineTakesASearchAndAWindow(t *testing.T) {
	_, d := watched(t)
	for query, lock := range map[string]bool{"owner:=reports": true, "owner:=drm": false, "billing/": true,
		"-name:billing*": false} {
		page := ok(t, d, "/timeline?q="+strings.ReplaceAll(query, " ", "+"))
		if got := strings.Contains(page, `">`+stuck+`</a>`); got != lock {
			t.Errorf("%s finds %s: %v", query, stuck, got)
		}
	}
	wantWords(t, ok(t, d, "/timeline?q=owner:=nobody"),
		"Nobody held a lock or waited for one in this time, as far as is known.")
	if refused := get(d, "/timeline?window=2h"); refused.Code != http.StatusBadRequest {
		t.Errorf("a window that does not exist answers %d", refused.Code)
	}
	wantWords(t, get(newScene().dashboard(t), "/timeline").Body.String(), "as far as is known.")
}

func TestTheTimelineIsATableForPrograms(t *testing.T) {
	_, d := watched(t)
	got := get(d, "/timeline.csv?window=6h&q=name:catalog*")
	lines := strings.Split(strings.TrimSpace(got.Body.String()), "\n")
	want := []string{`"cluster","lock","name","kind","owner","hostname","pid","hold","token","begin_at","end_at",`,
		`"","catalog/sync/eu","catalog/sync/eu","hold","catalog","catalog-55d","17"`,
		`"","catalog/sync/us","catalog/sync/us","hold","billing","billing-1","3"`}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is %s, want %s…", i, lines[i], want[i])
		}
	}
	const end = `"2026-11-21T03:22:41.000Z","2026-11-21T03:47:41.000Z","2026-11-21T03:32:41.000Z","released"`
	if !strings.HasSuffix(lines[2], end) {
		t.Errorf("the last line is %s, want …%s", lines[2], end)
	}
	waits := get(d, "/timeline.csv?q=owner:reports").Body.String()
	const wait = `"wait","reports","reports-0","9","","",` +
		`"2026-11-21T03:12:41.000Z","2026-11-21T03:47:41.000Z","","taken"`
	if !strings.Contains(waits, wait) {
		t.Errorf("the wait is not in %s", waits)
	}
}

func TestTheTimelineFollowsTheQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busy()
		s.fresh.Heard = s.now
		d := s.dashboard(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		synctest.Wait()
		s.change(func() {
			s.tick(2 * time.Second)
			s.queues = map[string][]metadata.Waiter{}
		})
		time.Sleep(5 * time.Second)
		wantWords(t, ok(t, d, "/timeline"), "catalog on catalog-0:1 waited, gave up 9m")
	})
}

func TestTheTimelineOfClustersShowsWhatItsViewerMay(t *testing.T) {
	w := clusters(t)
	page := w.page(t, "ann", "/timeline", http.StatusOK)
	wantWords(t, page, "nightly/run PROD-EU", "nightly/run STAGING", "billing/settle PROD-US")
	if !strings.Contains(page, `href="/c/prod-us/lock?name=billing/settle&amp;hold=`) {
		t.Error("a bar does not lead to its hold")
	}
	page = w.page(t, "ann", "/timeline?q=cluster:staging", http.StatusOK)
	if strings.Contains(page, "billing/settle") {
		t.Error("a search for one cluster finds others")
	}
	w.page(t, "", "/timeline", http.StatusUnauthorized)
	w.page(t, "", "/timeline.csv", http.StatusUnauthorized)
}

func TestHostileTextStaysTextInTheTimeline(t *testing.T) {
	s := newScene()
	s.add(hold{name: `"><script>alert(1)</script>`, owner: `</title><script>alert(2)</script>`, host: "a\x00\u202eb",
		held: 40 * time.Minute, alert: -time.Minute, unlock: time.Hour})
	s.wait(`"><script>alert(1)</script>`, `<svg onload=alert(3)>`, 30*time.Minute)
	d := s.dashboard(t)
	for _, path := range []string{"/timeline", "/lock?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"} {
		page := ok(t, d, path)
		if found := regexp.MustCompile(`<script>alert|<svg onload|\x00|\x{202e}`).FindString(page); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
}

// eventful is a day with this many holds and waits of fifty locks.
func eventful(t testing.TB, n int) (*scene, *dashboard.Dashboard) {
	s := newScene()
	d := s.dashboard(t)
	ok(t, d, "/history")
	random := rand.New(rand.NewPCG(3, 4))
	day := s.now
	for i := range n {
		s.now = day.Add(time.Duration(i) * 23 * time.Hour / time.Duration(n))
		lock := fmt.Sprintf("service-%02d/nightly/run", random.IntN(50))
		owner := fmt.Sprintf("service-%02d", random.IntN(12))
		took := time.Duration(random.ExpFloat64() * float64(4*time.Minute))
		if i%2 == 0 {
			w := s.waiter(lock, owner, owner+"-7f9c6d5b8", 17)
			w.ID = fmt.Sprint(i)
			w.Since = metadata.Time{Time: s.now.Add(-took)}
			d.Took("", w)
			continue
		}
		r := metadata.Record{Name: lock, UUID: uuid(fmt.Sprint(i)), Token: int64(i), LockedAt: s.now.Add(-took),
			Holder: metadata.Holder{Owner: owner, Hostname: owner + "-7f9c6d5b8", PID: 17}}
		r.AlertAt = r.LockedAt.Add(15 * time.Minute)
		var ending *metadata.Ending
		if i%97 == 0 {
			e := metadata.NewEnding(&r, metadata.EndedAutoUnlocked, "eu-1", "", s.now)
			ending = &e
		}
		d.Ended(&r, ending)
	}
	s.now = day.Add(23*time.Hour + time.Minute)
	s.fresh.Heard = s.now
	return s, d
}

func TestThePictureStaysWithinItsBudget(t *testing.T) {
	_, d := eventful(t, 10_000)
	for _, window := range []string{"1h", "24h"} {
		page := []byte(ok(t, d, "/timeline?window="+window))
		bars := strings.Count(string(page), "<title>")
		t.Logf("%s: %d bars, %d bytes, %d packed", window, bars, len(page), size(t, page))
		if packed := size(t, page); packed > 60_000 {
			t.Errorf("%d bytes packed; the budget is 60,000", packed)
		}
	}
}

func BenchmarkTimeline(b *testing.B) {
	_, d := eventful(b, 10_000)
	for b.Loop() {
		ok(b, d, "/timeline?window=24h")
	}
}
