//go:build browser

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNumbersInTablesDoNotBreak(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.hold(lock{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p", held: 40 * time.Minute,
		alert: time.Hour, unlock: 2 * time.Hour})
	for i := range 120 {
		s.wait("orders/settle", "checkout", fmt.Sprintf("checkout-%d", i), "settles the order of a customer who waits",
			time.Duration(i)*time.Second)
	}
	for _, width := range []int64{1280, 900, 768} {
		b.size(width, 800)
		for _, page := range []string{"waiting", "lock?name=orders/settle"} {
			b.open(s.url + page)
			b.until("the numbers", `document.querySelector("td.num")`)
			broken := ask[[]string](b, `[...document.querySelectorAll("td.num")].filter((td) => {
				const r = document.createRange();
				r.selectNodeContents(td);
				return new Set([...r.getClientRects()].map((c) => c.top)).size > 1;
			}).map((td) => td.textContent)`)
			if len(broken) > 0 {
				t.Errorf("%s at %d px breaks the numbers %q", page, width, broken)
			}
		}
	}
}

func TestWordsForATimeThatHasComeAreASentence(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.unlocker("auto-unlock")
	s.hold(lock{name: "a", owner: "o", host: "h", held: time.Minute, alert: -10 * time.Second, unlock: time.Hour})
	b.open(s.url)
	b.until("the lock", `document.querySelector(".verdict time[data-k=next]")`)
	said := ask[[]string](b, `import(document.querySelector("script[type=module]").src).then(({ words }) => {
		const say = (t) => {
			const h = document.querySelector(".verdict").cloneNode(true), at = h.querySelector("time[data-k=next]");
			at.textContent = words[at.dataset.k](t);
			return h.textContent.match(/Auto-unlock( [^.]*[.])/)[1];
		};
		return [say(-90000), say(1000)];
	})`)
	if want := []string{" in 1:30.", " due."}; !slices.Equal(said, want) {
		t.Errorf("the answer is %q, want %q", said, want)
	}
}

func TestLostContactNeverRetriesInNoTime(t *testing.T) {
	t.Parallel()
	s, b := four(t)
	s.kill()
	b.until("lost", `document.getElementById("lost")?.textContent.startsWith("Lost contact")`)
	ask[bool](b, `(window.said = [],
		new MutationObserver(() => said.push(document.getElementById("lost")?.textContent))
			.observe(document.getElementById("lost"), { childList: true, characterData: true, subtree: true }),
		true)`)
	b.until("several tries", `said.length > 8`)
	if zero := ask[[]string](b, `said.filter((s) => / 0s\.$/.test(s))`); len(zero) > 0 {
		t.Errorf("the banner says %q", zero)
	}
}

// TestNamesOfLocksAreSeenAtEveryWidth looks at lists in windows from a small phone to a large screen.
func TestNamesOfLocksAreSeenAtEveryWidth(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	s.hostile()
	s.hold(lock{name: "a-tenant/with-a-long-name/europe-west-4/settlement-of-orders/of-the-day", owner: "orders",
		host: "orders-settlement-7c9d8f6b5-x2k7p", held: 40 * time.Minute, alert: -time.Hour, unlock: 2 * time.Hour})
	widths := []int64{320, 360, 639, 640, 641, 642, 859, 860, 861, 862, 1099, 1100, 1101, 1280}
	for w := int64(420); w <= 1400; w += 60 {
		widths = append(widths, w)
	}
	for _, view := range []string{"", "?group=owner&density=full", "?cols=purpose,hold,token,revision,alive,labels"} {
		b.open(s.url + view)
		b.until("the locks", `document.querySelectorAll(".locks tbody").length > 11`)
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
			if wide := ask[int64](b, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("/%s at %d px is %d px wide", view, width, wide)
			}
		}
	}
}

func TestALongOwnerDoesNotWidenTheHistory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	b.size(1280, 800)
	b.open(s.url) // the dashboard watches
	long := strings.Repeat("W", 100)
	s.hold(lock{name: "billing/settle", owner: long, host: long, purpose: long, held: time.Hour,
		alert: -time.Minute, unlock: time.Hour})
	s.shown()
	s.release("billing/settle")
	b.open(s.url + "history")
	b.says("billing/settle")
	if wide := ask[float64](b, "document.documentElement.scrollWidth"); wide > 1280 {
		t.Errorf("the page is %v px wide", wide)
	}
}
