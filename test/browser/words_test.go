//go:build browser

package browser

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func TestServerAndBrowserFormatTimesAlike(t *testing.T) {
	s, b := staged(t)
	s.unlocker("auto-unlock")
	for i := range 90 { // distances from seconds to weeks, also passed ones
		d := time.Duration(float64(3*time.Second) * math.Pow(1.18, float64(i)))
		ahead := d
		if i%3 == 0 {
			ahead = -d
		}
		s.hold(lock{name: fmt.Sprintf("lock-%02d", i), owner: "o", host: "h", held: d, alert: ahead,
			unlock: ahead + d/2, alive: "going on"})
	}
	s.wait("lock-05", "w", "h", "waits", 3*time.Minute)
	s.kill() // what is listed, and not watched arriving, has no arrival that its deadlines could count from
	s.kill = s.run()
	b.open(s.url)
	differ := ask[[]string](b, `(async () => {
		const { words } = await import(document.querySelector("script[type=module]").src);
		const differ = [], kinds = new Set();
		for (const address of ["/", "/lock?name=lock-05", "/lock?name=lock-30", "/lock?name=lock-31",
				"/lock?name=lock-60"]) {
			const page = await new Promise((done, failed) => {
				const ask = Object.assign(new XMLHttpRequest(), {
					responseType: "document", onload: () => done(ask.response), onerror: failed,
				});
				ask.open("GET", address);
				ask.send();
			});
			for (const el of page.querySelectorAll("time[data-k]")) {
				const said = (el.querySelector("[aria-hidden]") || el).textContent;
				const distance = page.body.dataset.now - Date.parse(el.dateTime);
				const word = words[el.dataset.k];
				kinds.add(el.dataset.k);
				if (![-1, 0, 1].some((ms) => word(distance + ms) === said)) {
					differ.push(el.dataset.k + " " + distance + ": " + said + ", " + word(distance));
				}
			}
		}
		if (words.next(1000) !== "due") differ.push("due, " + words.next(1000)); // once it has passed
		return [[...kinds].sort().join(), ...differ];
	})()`)
	kinds := strings.Split(differ[0], ",")
	for _, k := range []string{"age", "alert", "next", "over"} {
		if !slices.Contains(kinds, k) {
			t.Errorf("no time of the kind %s was compared, only %s", k, kinds)
		}
	}
	for _, d := range differ[1:] {
		t.Errorf("the server says, the browser says: %s", d)
	}
}

func TestLocalTimesNameTheirZone(t *testing.T) {
	s, b := staged(t)
	b.check(second(chromedp.Call(b.ctx, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})))
	b.check(second(chromedp.Call(b.ctx, emulation.SetLocaleOverride,
		emulation.SetLocaleOverrideParams{Locale: "en-GB"})))
	b.open(s.url + "timeline")
	ask[bool](b, `(document.body.append(document.createElement("time")),
		document.body.lastChild.dateTime = "2026-11-21T03:12:39Z",
		document.body.lastChild.toggleAttribute("data-clock"))`)
	b.press("z")
	if got := ask[string](b, `document.body.lastChild.textContent`); got != "04:12:39 CET" {
		t.Errorf("the time in a sentence is %s", got)
	}
	got := ask[string](b, `import(document.querySelector("script[type=module]").src).then(({ full, hour }) =>
		["00", "01", "02"].map((h) => Date.parse("2026-10-25T" + h + ":30Z"))
			.map((t) => full(t) + " " + hour(t)) + "")`)
	if got != "2026-10-25 02:30:00 CEST 02:30 CEST,2026-10-25 02:30:00 CET 02:30 CET,2026-10-25 03:30:00 CET 03:30" {
		t.Errorf("the times are %s", got)
	}
	b.check(second(chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Media: "print"})))
	if clock := ask[string](b, `document.querySelector(".clock").innerText`); !strings.HasPrefix(clock, "CE") {
		t.Errorf("on paper, the clock is %s", clock)
	}
}

func TestReducedMotionIsRespected(t *testing.T) {
	s, b := staged(t)
	s.hold(lock{name: "a", owner: "o", host: "h", held: 5 * time.Second, alert: 50 * time.Second,
		unlock: 118 * time.Second})
	b.prefer("prefers-reduced-motion", "reduce")
	b.open(s.url)
	const cells = `[...document.querySelectorAll(".locks td > time")]
		.map((e) => (e.querySelector("[aria-hidden]") || e).textContent).join(", ")`
	// the server does not know who wants no motion: the script writes its own words once the rows are seen
	b.until("the words of the script", cells+` === "<1m, in <1m"`)
	b.watch(cells)
	b.pass(3300 * time.Millisecond)
	if seen := b.seen(); len(seen) != 1 {
		t.Errorf("the times have been %+v", seen)
	}
	if clock := ask[string](b, `document.getElementById("clock").textContent`); len(clock) != len("03:12") {
		t.Errorf("the clock shows %q", clock)
	}
}

func TestTickingTimesAreCheap(t *testing.T) {
	s := newStage(t)
	b := newTab(t, s)
	s.many(100)
	b.open(s.url)
	b.until("all locks", `document.querySelectorAll(".locks .name").length === 100`)
	took := ask[float64](b, `(async () => {
		const { tick } = await import(document.querySelector("script[type=module]").src), took = [];
		for (let i = 0; i < 40; i++) {
			await new Promise((done) => setTimeout(done, 20));
			const start = performance.now();
			tick();
			document.body.offsetHeight;
			took.push(performance.now() - start);
		}
		return took.sort((a, b) => a - b)[20];
	})()`)
	if took > 4 {
		t.Errorf("a second of 100 locks costs %.1f ms, want at most 4", took)
	}
}

// TestLockNamesAreVisibleAtEveryWidth looks at lists in windows from a small phone to a large screen.
func TestLockNamesAreVisibleAtEveryWidth(t *testing.T) {
	s, b := staged(t)
	s.night()
	s.hostile()
	s.hold(lock{name: "a-tenant/with-a-long-name/europe-west-4/settlement-of-orders/of-the-day", owner: "orders",
		host: "orders-settlement-7c9d8f6b5-x2k7p", held: 24 * time.Hour, alert: -23*time.Hour - 50*time.Minute,
		unlock: 23*time.Hour + 50*time.Minute, alive: "order 7"}) // late for long, and removed if it falls silent
	s.unlocker("auto-unlock")
	list := &situations{stage: s, b: b}
	widths := []int64{320, 360, 639, 640, 641, 642, 859, 860, 861, 862, 1099, 1100, 1101, 1280}
	for w := int64(420); w <= 1400; w += 60 {
		widths = append(widths, w)
	}
	for _, view := range []string{"", "?group=owner"} {
		b.open(s.url + view)
		b.until("the locks", `document.querySelectorAll(".locks .name").length > 11`)
		ask[bool](b, `(document.querySelectorAll("details").forEach((d) => (d.open = true)), true)`)
		for _, width := range widths {
			b.size(width, 800)
			// of each name: what its cell and itself let through, and what it would take
			cut := ask[[]string](b, `[...document.querySelectorAll(".locks .name")].map((a) => {
				const cell = a.closest("th").getBoundingClientRect(), own = a.getBoundingClientRect();
				const range = document.createRange();
				range.selectNodeContents(a);
				const all = range.getBoundingClientRect();
				const seen = Math.min(cell.right, own.right, all.right) - Math.max(cell.left, own.left, all.left);
				return seen >= Math.min(120, all.width) - 1 ? "" : Math.round(seen) + " px of " + a.textContent;
			}).filter(Boolean)`)
			if len(cut) > 0 {
				t.Errorf("/%s at %d px shows only %q", view, width, cut)
			}
			list.fits("/"+view, width)
		}
	}
}

func TestActionsAreOnTheFirstScreenOfEveryDevice(t *testing.T) {
	s, b := everything(t)
	s.settle(12)
	for _, size := range [][2]int64{{360, 740}, {768, 900}, {960, 600}, {1280, 720}} {
		b.size(size[0], size[1])
		b.open(s.url + lockPage("orders/settle"))
		b.until("the scripts", `document.documentElement.classList.contains("scripted")`)
		outside := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button)")].filter((e) => {
			const r = e.getBoundingClientRect();
			return r.bottom > innerHeight || r.right > innerWidth || r.height < 32 || r.width < 32;
		}).map((e) => e.textContent)`)
		if len(outside) > 0 {
			t.Errorf("%d × %d: %q are not on the first screen, or too small", size[0], size[1], outside)
		}
	}
	b.scripts(false)
	b.open(s.url + lockPage("orders/settle"))
	shown := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button), .todo a")]
		.filter((e) => e.checkVisibility()).map((e) => e.textContent)`)
	want := []string{"Acknowledge…", "Silence in Alertmanager…", "logs", "Give more time…", "Ask to finish…",
		"Force unlock…"}
	if !slices.Equal(shown, want) {
		t.Errorf("without scripts the actions are %q, want %q", shown, want)
	}
}
