//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestLockThatStartsAlertingMovesUpWithoutAReload(t *testing.T) {
	s, b := staged(t)
	s.many(3)
	s.unlocker("alert-only")
	s.hold(lock{name: "z/late", owner: "z", host: "z-0", held: time.Minute, alert: 15 * time.Second, unlock: time.Hour,
		purpose: "takes its time"})
	b.open(s.url)
	b.until("four locks", `document.querySelectorAll(".locks .name").length === 4`)
	if class := ask[string](b, `document.querySelector("tbody:has([href*='late'])").className`); class != "held" {
		t.Fatalf("the lock is %s at first, want held", class)
	}
	ask[int](b, `window.here = 1`)
	b.until("the lock on top", `document.querySelector(".locks tbody.alerting:nth-of-type(2) .name")?.textContent
		=== "z/late"`, 40*time.Second)
	b.until("the title", `document.title.startsWith("(1!)")`)
	b.until("the answer", `document.querySelector(".headline").textContent.includes(" late, and its holder has never")`)
	if ask[string](b, `document.querySelector(".headline").className`) != "headline silent alerting" ||
		ask[int](b, `window.here || 0`) != 1 {
		t.Error("the page was reloaded, or its headline has another look")
	}
}

func TestFocusAndSelectionSurviveAHundredUpdates(t *testing.T) {
	s, b := staged(t)
	s.many(12)
	s.hold(lock{name: "a/changes", owner: "a", host: "a-0", held: time.Minute, alert: -time.Second, unlock: time.Hour,
		purpose: "all the time"})
	b.open(s.url)
	b.until("all locks", `document.querySelectorAll(".locks .name").length === 13`)
	for range 4 {
		b.press("j")
	}
	const where = `document.activeElement.textContent + " " + getSelection() + " " + Math.round(scrollY) + " "
		+ Math.round(document.activeElement.getBoundingClientRect().top)`
	ask[bool](b, `(getSelection().selectAllChildren(document.querySelector("tbody:nth-of-type(6) .name")),
		scrollTo(0, 40), true)`)
	before := ask[string](b, where)
	if !strings.HasPrefix(before, "batch/") {
		t.Fatalf("j leads to %q", before)
	}
	for i := range 100 {
		was := ask[string](b, `document.getElementById("live").dataset.etag`)
		s.put("a/changes", lockrecord.FieldAlive, lockrecord.FormatAlive(time.Now(), fmt.Sprintf("step %d", i)))
		b.until("an update", fmt.Sprintf(`(document.dispatchEvent(new KeyboardEvent("visibilitychange")),
			document.getElementById("live").dataset.etag !== %q)`, was))
	}
	b.until("the last step", `document.querySelector(".locks").textContent.includes("step 99")`)
	if after := ask[string](b, where); after != before {
		t.Errorf("focus, selection and place were %q and are %q", before, after)
	}
}

// copies clicks a button that copies and returns what it copied.
func (b *tab) copies(selector string) string {
	b.t.Helper()
	b.until("the button", fmt.Sprintf(`document.querySelector(%q)`, selector))
	// it says so for 1.5 s, and the live page may replace it meanwhile
	return ask[string](b, fmt.Sprintf(`new Promise((done) => {
		const button = document.querySelector(%q);
		let copied;
		Object.defineProperty(navigator, "clipboard", { configurable: true,
			value: { writeText: async (text) => { copied = text; } } });
		new MutationObserver(() => button.textContent === "copied" && done(copied))
			.observe(button, { childList: true, characterData: true, subtree: true });
		button.click();
	})`, selector))
}

func TestNamesCommandsAndBacktracesCanBeCopied(t *testing.T) {
	s, b := staged(t)
	s.night()
	for _, c := range []struct{ page, button, want string }{
		{"?q=owner:billing", ".locks .copy", held},
		{"?q=owner:billing", ".meta .copy", "curl -s '" + s.url + "api/v1/locks?q=owner:billing'"},
		{"lock?name=" + held, ".lock-head .copy", held},
		{"lock?name=" + held, ".command .copy", "kubectl logs --since=30m billing-7f9c5d-x2lqv"},
		{"lock?name=catalog/sync/eu", "[aria-labelledby=h-trace] .copy",
			"/srv/catalog/sync/eu.py:212 in import_price_list\n    for item in supplier.items():\n" +
				"/srv/catalog/sync/base.py:47 in run\n    self.import_price_list(supplier)\n" +
				"/usr/lib/python3.12/site-packages/celery/app/trace.py:477 in trace_task\n" +
				"    R = retval = fun(*args, **kwargs)"},
	} {
		b.open(s.url + c.page)
		if strings.HasPrefix(c.button, ".locks") {
			b.point(".locks tbody .name")
		}
		if got := b.copies(c.button); got != c.want {
			t.Errorf("%s on %s copies %q, want %q", c.button, c.page, got, c.want)
		}
	}
	ask[bool](b, `(document.getElementById("fresh").old = true)`)
	b.until("an update",
		`(document.dispatchEvent(new Event("visibilitychange")), !document.getElementById("fresh").old)`)
	if up := ask[string](b, `document.getElementById("up").search`); up != "?q=owner:billing" {
		t.Errorf("the way back leads to the list %q", up)
	}
	b.until("the word comes back", `document.querySelector("[aria-labelledby=h-trace] .copy").textContent === "copy"`)
}

func TestCopyButtonDoesNotCoverRows(t *testing.T) {
	s, b := staged(t)
	s.night()
	b.open(s.url + "?q=owner:billing")
	const seen = `!!document.querySelector(".locks tbody:hover .copy")?.checkVisibility()`
	b.until("the rows", `document.querySelector(".locks tbody") && !document.querySelector(".locks .copy")`)
	b.point(".locks tbody .name")
	b.until("the button under the pointer", seen)
	b.point(".brand")
	b.until("no button", `!document.querySelector(".locks .copy")`)
	text := ask[string](b, `(getSelection().selectAllChildren(document.querySelector(".locks tr:has(.name)")),
		getSelection().toString())`)
	whole := strings.HasPrefix(text, held+"\tbilling billing-") && strings.HasSuffix(strings.TrimSpace(text), "\t3")
	if !whole || strings.Contains(text, "under") {
		t.Errorf("a selected row is %q, want what is seen, with tabs between the cells", text)
	}
}

func TestBarsMoveWithoutAReload(t *testing.T) {
	s, b := staged(t)
	s.hold(lock{name: "a", owner: "o", host: "h", held: 20 * time.Second, alert: 8 * time.Second,
		unlock: time.Minute}) // a busy browser may take long to show it
	b.open(s.url)
	b.until("the bar", `document.querySelector(".track .n")`)
	const place = `document.querySelector(".track .n").x.baseVal.valueInSpecifiedUnits`
	ask[bool](b, `(window.bar = document.querySelector(".track"), window.was = `+place+`, true)`)
	b.until("the bar goes on", place+` > was + 2 && bar.isConnected`)
	if mark := ask[float64](b, `document.querySelector(".track .m").x.baseVal.valueInSpecifiedUnits`); mark < 34 ||
		mark > 36 {
		t.Errorf("the alert is marked at %.1f%%, want 35%%", mark)
	}
	b.until("the row alerts, and what is past the alert is red", `document.querySelector("tbody.alerting .track .l")
		&& `+place+` > 36`)
	grown := ask[float64](b, `import(document.querySelector("script[type=module]").src).then(({ tick }) => {
		const bar = document.querySelector(".track");
		bar.length = bar.next = 1000;
		tick();
		return bar.querySelector(".n").x.baseVal.valueInSpecifiedUnits;
	})`)
	if grown != 100 {
		t.Errorf("a bar that its hold has outgrown is filled to %.1f%%", grown)
	}
}

func TestOnAPhone(t *testing.T) {
	s, b := everything(t)
	s.night()
	s.nights()
	b.size(360, 740)
	b.open(s.url + lockPage(held))
	const top = `document.getElementById("h-chart").getBoundingClientRect().top + scrollY`
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
	const pressed = `document.querySelector("#zone[aria-label='Local time']").ariaPressed`
	if got := ask[string](b, pressed); got != "false" {
		t.Errorf("at first local time is pressed: %s", got)
	}
	b.click("#zone")
	b.until("local time", pressed+` === "true"`)
	if button := ask[string](b, `getComputedStyle(document.querySelector(".facts dd .copy")).opacity`); button != "0" {
		t.Error("each fact has a button to copy it, wanted or not")
	}
	b.open(s.url)
	b.until("local time, also elsewhere", pressed+` === "true"`)
	const targets = "nav a, .locks .name, .paging a, .paging button, input:not([type=hidden])"
	small := ask[[]string](b, `[...document.querySelectorAll("`+targets+`")]
		.map((e) => [e, e.getBoundingClientRect()])
		.filter(([, r]) => r.height > 0 && r.height < 39)
		.map(([e, r]) => r.height + " " + e.outerHTML.slice(0, 100))`)
	if len(small) > 0 {
		t.Errorf("hard to hit:\n%s", strings.Join(small, "\n"))
	}
	b.click("#menu > summary")
	b.click("#zone")
	b.until("UTC", pressed+` === "false" && document.querySelector(".clock").textContent.startsWith("UTC")`)
	b.size(1280, 800)
	b.open(s.url + lockPage(held))
	if !ask[bool](b, fact+" && "+page) {
		t.Error("where there is room, facts or pages are folded")
	}
}

func TestPrintoutHasItsOriginAndTime(t *testing.T) {
	s, b := staged(t)
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

const hostileName = "<script>alert(1)</script>\u202e\"'\x01{{.}} \u65e5\u672c\u8a9e " +
	"averylongnamewithoutanyplacewhereitcouldbebrokenaveryveryverylongnameindeed/and/more"

func (s *stage) hostile() {
	s.hold(lock{name: hostileName, owner: "<img src=x onerror=alert(1)>", host: strings.Repeat("host", 40),
		purpose: "javascript:alert(1) " + strings.Repeat("long", 60),
		trace:   "<b>nothing</b>\n" + strings.Repeat("x", 500), held: 60e9, alert: -1e9, unlock: 3600e9})
}

func TestBrowserErrorsAreReported(t *testing.T) {
	s, b := staged(t)
	b.open(s.url)
	ask[bool](b, `document.body.append(Object.assign(document.createElement("p"), {style: "color: red"})),
		document.body.lastChild.setAttribute("style", "color: red"), true`)
	ask[bool](b, `setTimeout(() => { throw new Error("a failing script") }), true`)
	var all []string
	proctest.Eventually(t, "the browser complains of a style that the policy forbids, and of a failing script",
		func() error {
			all = append(all, b.troubles()...)
			text := fmt.Sprint(all)
			if !strings.Contains(text, "Content Security Policy") || !strings.Contains(text, "a failing script") {
				return fmt.Errorf("it complains %q", all)
			}
			return nil
		})
}

func TestEverythingWorksWithoutScripts(t *testing.T) {
	s, b := staged(t)
	s.night()
	s.unlocker("alert-only")
	b.scripts(false)
	b.open(s.url)
	if n := ask[int](b, `document.querySelectorAll(".locks .name").length`); n != 12 {
		t.Fatalf("%d locks are shown, want 12", n)
	}
	if text := ask[string](b, `document.querySelector("noscript p").textContent`); !strings.Contains(text,
		"does not refresh") || ask[bool](b, `document.querySelector(".foot").innerText.includes("live")`) {
		t.Errorf("without scripts the page calls itself live, or says %q", text)
	}
	buttons := ask[int](b, `[...document.querySelectorAll("button")].filter((e) => e.checkVisibility()).length`)
	if buttons > 0 {
		t.Errorf("%d buttons that do nothing are shown", buttons)
	}
	b.do(typeInto("#q", "owner:catalog\r"))
	b.until("the filtered list", `document.querySelectorAll(".locks .name").length === 1`)
	b.open(ask[string](b, `document.querySelector(".locks .name").href`))
	b.says("Held by catalog on catalog-55d8b-q7xzn")
}
