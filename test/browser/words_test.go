//go:build browser

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestServerAndBrowserSayTimeInTheSameWords(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	for i := range 90 { // distances from seconds to weeks, also passed ones
		d := time.Duration(float64(3*time.Second) * pow(1.18, i))
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
		for (const address of ["/?density=full", "/lock?name=lock-05", "/lock?name=lock-30", "/lock?name=lock-31",
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
		return [[...kinds].sort().join(), ...differ];
	})()`)
	kinds := strings.Split(differ[0], ",")
	for _, k := range []string{"age", "alert", "over", "unlock"} {
		if !slices.Contains(kinds, k) {
			t.Errorf("no time of the kind %s was compared, only %s", k, kinds)
		}
	}
	for _, d := range differ[1:] {
		t.Errorf("the server says, the browser says: %s", d)
	}
}

func pow(x float64, n int) float64 {
	y := 1.0
	for range n {
		y *= x
	}
	return y
}

func TestNothingMovesForThoseWhoWantNoMotion(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.hold(lock{name: "a", owner: "o", host: "h", held: 5 * time.Second, alert: 50 * time.Second,
		unlock: 118 * time.Second})
	b.prefer("prefers-reduced-motion", "reduce")
	b.open(s.url)
	const cells = `[...document.querySelector(".locks td .hold").children]
		.filter((e) => e.tagName !== "svg").map((e) => (e.querySelector("[aria-hidden]") || e).textContent).join(", ")`
	// the server does not know who wants no motion: the script writes its own words once the rows are seen
	b.until("the words of the script", cells+` === "<1m, in <1m, <2m"`)
	b.watch(cells)
	b.pass(3300 * time.Millisecond)
	if seen := b.seen(); len(seen) != 1 {
		t.Errorf("the times have been %+v", seen)
	}
	if clock := ask[string](b, `document.getElementById("clock").textContent`); len(clock) != len("03:12") {
		t.Errorf("the clock shows %q", clock)
	}
}
