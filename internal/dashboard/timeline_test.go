package dashboard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// watched is the busy night after most of an hour with a release, an acquisition after a wait, and a gap.
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
	d.Acquired(first)
	e := s.over("catalog/sync/us", metadata.EndingReleased, "", "", 25*time.Minute, 0)
	r := metadata.Record{Name: e.Name, UUID: e.UUID, Token: e.Token, Identity: e.Identity, LockedAt: e.LockedAt.Time,
		AlertAt: e.AlertAt.Time, AutoUnlockAt: e.AutoUnlockAt.Time}
	d.Ended(&r, nil)
	s.tick(5 * time.Minute)
	return s, d
}

func TestTimelineShowsQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busy()
		s.fresh.HeardAt = s.now
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

func TestTimelineOpensWithWhatWasWatched(t *testing.T) {
	s := busy()
	d := s.dashboard(t)
	for _, want := range []string{"15 min", "1 h"} {
		if page := ok(t, d, "/timeline"); !strings.Contains(page, `<b aria-current="true">`+want+"</b>") {
			t.Errorf("the window is not %s", want)
		}
		s.tick(61 * time.Minute)
	}
}

// A label fits beside the stripes, and marks are at least 18 of 750 px apart.
func TestTimelineHasRoomForLabelsAndMarks(t *testing.T) {
	s := newScene()
	for i := range 9 {
		began := time.Duration(3000-25*i) * time.Second
		s.over("burst", metadata.EndingForced, "ann", "", began, began-25*time.Second)
	}
	s.add(hold{name: "a", owner: "on-time", held: 30 * time.Minute, alert: time.Minute})
	s.add(hold{name: "b", owner: "late", held: 30 * time.Minute, alert: -29 * time.Minute})
	page := ok(t, s.dashboard(t), "/timeline?window=1h")
	var seen []string
	for _, m := range regexp.MustCompile(`class="(?:owner[^>]*>([^<]*)|mark[^>]*><rect x="([0-9.]+%))`).
		FindAllStringSubmatch(page, -1) {
		seen = append(seen, m[1]+m[2])
	}
	if want := []string{"17.36%", "20.14%", "22.92%", "on-time"}; !slices.Equal(seen, want) {
		t.Errorf("the labels and marks are %q, want %q", seen, want)
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
			d.Acquired(w)
			continue
		}
		d.Ended(&metadata.Record{Name: lock, UUID: uuid(fmt.Sprint(i)), Token: int64(i), LockedAt: s.now.Add(-took),
			AlertAt:  s.now.Add(15*time.Minute - took),
			Identity: metadata.Identity{Owner: owner, Hostname: owner + "-7f9c6d5b8", PID: 17}}, nil)
	}
	s.now = day.Add(23*time.Hour + time.Minute)
	s.fresh.HeardAt = s.now
	return s, d
}

func TestTimelineStaysWithinItsBudget(t *testing.T) {
	_, d := eventful(t, 10_000)
	for _, window := range []string{"1h", "24h"} {
		if packed := size(t, []byte(ok(t, d, "/timeline?window="+window))); packed > 60_000 {
			t.Errorf("%s: %d bytes packed; the budget is 60,000", window, packed)
		}
	}
}

func TestTimelineAsJSONIsCompleteAndPaged(t *testing.T) {
	_, d := eventful(t, 3_000)
	seen := map[string]bool{}
	before := "9"
	all, pages, matched := paged(t, d, "/api/v1/timeline?window=24h&limit=700", "intervals")
	for _, j := range all {
		began := j["began_at"].(string)
		id := fmt.Sprint(j["name"], j["wait"], j["token"], began, j["ended_at"])
		if seen[id] || began > before {
			t.Fatalf("%s is there twice, or after %s", id, before)
		}
		seen[id] = true
		before = began
	}
	if float64(len(all)) != matched || matched < 2_900 || pages != int(matched)/700+1 {
		t.Errorf("%d pages have %d of %v intervals", pages, len(all), matched)
	}
}

// A bar is named by its parts from left to right, each with its start; n is the future, and m marks the alert.
func TestBarsOfHolds(t *testing.T) {
	const ago, ahead = time.Hour, time.Minute
	for name, c := range map[string]struct {
		hold   hold
		change func(*staleness.Policy)
		want   string
	}{
		"as expected": {hold{held: 30 * ahead, alert: 10 * ahead, unlock: 30 * ahead}, nil,
			"data-s3601 l67% n50% m67%"},
		"late": {hold{held: ago, alert: -15 * ahead, unlock: 15 * ahead}, nil, "data-s4501 l60% n80% m60%"},
		"to be removed": {hold{held: ago, alert: -30 * ahead, unlock: -15 * ahead}, nil,
			"data-s3601 l50% x75% n100% m50%"},
		"alert with unlock": {hold{held: ago, alert: ago, unlock: ago}, nil, "data-s7201 n50%"},
		"heartbeat": {hold{held: 19 * ahead, alert: ahead, unlock: ahead, alive: "41 of 212"}, nil,
			"data-s1201 beats 90% n95%"},
		"alive, own alert": {hold{held: 30 * ahead, alert: 10 * ahead, unlock: 30 * ahead, alive: "1"}, nil,
			"data-s3601 l67% n50% m67%"},
		"no deadline":      {hold{held: ago}, func(p *staleness.Policy) { *p = staleness.Policy{} }, "data-s4501 n80%"},
		"taken, who knows": {hold{alert: ago, unlock: ago}, nil, ""},
		"taken in the future": {hold{held: -ahead, alert: 2 * ahead, unlock: 3 * ahead}, nil,
			"data-s121 l0% n0% m0%"},
	} {
		s := newScene()
		c.hold.name = "lock"
		s.add(c.hold)
		config := publishing(func(p *staleness.Policy) {})
		if c.change != nil {
			config = publishing(c.change)
		}
		got := ""
		page := ok(t, s.dashboard(t, config), "/")
		bar := regexp.MustCompile(`<svg[^>]*><rect/>.*?</svg>`).FindString(page)
		for _, part := range regexp.MustCompile(`(data-s)="(\d+)"|#(beats)|(?:class="(\w)" )?x="(\d+%)"`).
			FindAllStringSubmatch(bar, -1) {
			got += " " + strings.Join(part[1:], "")
		}
		if got = strings.TrimSpace(got); got != c.want {
			t.Errorf("%s: the bar is %q, want %q", name, got, c.want)
		}
	}
}

func TestEventsOfALockAreOrderedAndCut(t *testing.T) {
	s := busy()
	for i := range 60 {
		s.over(stuck, metadata.EndingForced, "bob", fmt.Sprint("it hung ", i), time.Duration(i+2)*time.Hour,
			time.Duration(i+1)*time.Hour)
	}
	page := ok(t, s.dashboard(t), "/lock?name="+stuck)
	wantWords(t, page, "The history has more.")
	times := regexp.MustCompile(`<li class="(?:held|ended|waits|alert)"><time datetime="[^"]*"`).FindAllString(page, -1)
	for i := range times {
		_, times[i], _ = strings.Cut(times[i], "datetime")
	}
	if len(times) != 55 || !slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%d times: %q", len(times), times)
	}
}
