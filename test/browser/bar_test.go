//go:build browser

package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

func TestBarsMoveWithoutAReload(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.hold(lock{name: "a", owner: "o", host: "h", held: 10 * time.Second, alert: 4 * time.Second,
		unlock: 30 * time.Second})
	b.open(s.url)
	b.until("the bar", `document.querySelector(".hold .n")`)
	const place = `document.querySelector(".hold .n").x.baseVal.valueInSpecifiedUnits`
	ask[bool](b, `(window.bar = document.querySelector(".hold svg"), window.was = `+place+`, was > 20 && was < 60)`)
	b.until("the bar goes on", place+` > was + 4 && bar.isConnected`)
	if mark := ask[float64](b, `document.querySelector(".hold .m").x.baseVal.valueInSpecifiedUnits`); mark < 34 ||
		mark > 36 {
		t.Errorf("the alert is marked at %.1f%%, want 35%%", mark)
	}
	b.until("the row alerts, and what is past the alert is red", `document.querySelector("tbody.alerting .hold .l")
		&& `+place+` > 36`)
	grown := ask[float64](b, `import(document.querySelector("script[type=module]").src).then(({ tick }) => {
		const bar = document.querySelector(".hold svg");
		bar.length = bar.next = 1000;
		tick();
		return bar.querySelector(".n").x.baseVal.valueInSpecifiedUnits;
	})`)
	if grown != 100 {
		t.Errorf("a bar that its hold has outgrown is filled to %.1f%%", grown)
	}
}

func TestOnAPhoneFactsAndPagesAreFolded(t *testing.T) {
	t.Parallel()
	s := everything(t)
	b := s.b
	s.night()
	s.nights()
	b.size(360, 740)
	b.open(s.url + lockPage(held))
	const top = `document.getElementById("h-picture").getBoundingClientRect().top + scrollY`
	if top := ask[float64](b, top); top > 1800 {
		t.Errorf("before the timeline are %.0f px, want at most 1800", top)
	}
	const fact, page = `document.querySelector(".facts dd").checkVisibility({contentVisibilityAuto: true})`,
		`document.querySelector("nav[aria-label=Pages] a").checkVisibility()`
	if ask[bool](b, fact+" || "+page) {
		t.Error("facts, or the pages, are not folded")
	}
	b.click(".less > summary")
	b.click("#menu > summary")
	b.until("facts and pages", fact+" && "+page)
	b.click("#theme")
	b.until("a theme", `document.documentElement.dataset.theme === "light"`)
	if button := ask[string](b, `getComputedStyle(document.querySelector(".facts dd .copy")).opacity`); button != "0" {
		t.Error("each fact has a button to copy it, wanted or not")
	}
	b.size(1280, 800)
	b.open(s.url + lockPage(held))
	if !ask[bool](b, fact+" && "+page) {
		t.Error("where there is room, facts or pages are folded")
	}
}

func TestAPrintSaysWhereAndWhenItIsFrom(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	b.open(s.url + "?q=billing")
	b.check(second(chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})))
	text := ask[string](b, `document.querySelector("header").innerText`)
	for _, want := range []string{"PROD-EU", s.url + "?q=billing", time.Now().UTC().Format(time.DateOnly)} {
		if !strings.Contains(text, want) || len(text) > 200 {
			t.Errorf("the head of a print says %q, want %s", text, want)
		}
	}
}

func TestWithoutScriptsThePageSaysThatItDoesNotRefresh(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	b.open(s.url)
	const says = `!!document.querySelector("noscript p")?.textContent.includes("does not refresh")`
	if ask[bool](b, says) {
		t.Error("with scripts it says that it does not refresh")
	}
	b.scripts(false)
	b.open(s.url)
	b.says("mutexctl run my/lock")
	if !ask[bool](b, says) {
		t.Error("without scripts it does not say that it does not refresh")
	}
	if ask[bool](b, `document.querySelector(".foot").innerText.includes("live")`) {
		t.Error("without scripts it calls itself live")
	}
}
