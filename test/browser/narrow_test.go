//go:build browser

package browser

import (
	"slices"
	"testing"
	"time"
)

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

func TestActionsAreOnTheFirstScreenOfEveryDevice(t *testing.T) {
	t.Parallel()
	s := everything(t)
	b := s.b
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
	shown := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button)")]
		.filter((e) => e.checkVisibility()).map((e) => e.textContent)`)
	want := []string{"Give more time…", "Ask to finish…", "Acknowledge…", "Silence in Alertmanager…", "Force unlock…",
		"logs"}
	if !slices.Equal(shown, want) {
		t.Errorf("without scripts the actions are %q, want %q", shown, want)
	}
}
