//go:build browser

package browser

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// four returns a stage with four locks in the order of their names, and a tab that shows them.
func four(t *testing.T) (*stage, *tab) {
	t.Helper()
	s, b := staged(t)
	for i, name := range []string{"a", "b", "c", "d"} {
		s.takes(name, time.Duration(i+1)*time.Hour)
	}
	b.open(s.url)
	b.until("four locks", `document.querySelectorAll(".locks .name").length === 4`)
	b.fast()
	return s, b
}

// fast makes the page poll every two seconds.
func (b *tab) fast() {
	b.t.Helper()
	ask[bool](b, `(document.getElementById("every").value = "2",
		document.getElementById("every").dispatchEvent(new Event("change", {bubbles: true})))`)
}

func TestRowsKeepTheirPlacesUnderThePointer(t *testing.T) {
	s, b := four(t)
	b.point("tbody:nth-of-type(3) td")
	s.takes("now", time.Minute)
	s.alerts("d")
	s.release("c")
	b.until("three changes wait", `document.getElementById("changes")?.textContent === "3 changes (r)"`)
	if got := b.names(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("under the pointer the rows became %q", got)
	}
	looks := ask[string](b,
		`[...document.querySelectorAll(".locks tbody:not(.part)")].map((e) => e.className.split(" ")[0])
		.join()`)
	if looks != "held,held,gone,alerting" {
		t.Errorf("the rows look %s: what is known is shown at once, only not moved", looks)
	}
	b.press("r")
	if got := b.names(); !slices.Equal(got, []string{"d", "now", "a", "b"}) {
		t.Errorf("after r the rows are %q", got)
	}
	if ask[bool](b, `!!document.getElementById("changes")`) {
		t.Error("the changes still wait")
	}
	b.point("tbody:nth-of-type(3) td")
	s.takes("next", -time.Hour)
	b.until("a change waits", `document.getElementById("changes")?.textContent === "1 change (r)"`)
	b.point(".brand")
	b.until("the new row is the first", `document.querySelector(".locks .name").textContent === "next"
		&& !document.getElementById("changes")`, 30*time.Second) // and not after a minute, when nobody reads any more
}

func TestRowOfAnEndedHoldStaysForTenSeconds(t *testing.T) {
	s, b := four(t)
	b.watch(`!!document.querySelector("tbody.gone") + " " + document.querySelectorAll(".locks .name").length`)
	s.release("b")
	b.until("the row is greyed", `document.querySelector("tbody.gone td:nth-child(5)")?.textContent === "ended"
		&& document.querySelector("tbody.gone .name").textContent === "b"`)
	if got := b.names(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("the rows are %q", got)
	}
	b.until("the row is gone", `document.querySelectorAll(".locks .name").length === 3`)
	seen := b.seen()
	if len(seen) != 3 || seen[1].Value != "true 4" || seen[2].Value != "false 3" || seen[2].At-seen[1].At < 9900 {
		t.Errorf("a row is grey, and the rows are: %+v; want grey for 10 s", seen)
	}
}

func TestFocusedRowIsPatchedAroundTheFocus(t *testing.T) {
	s, b := four(t)
	b.press("jj")
	s.alerts("b")
	b.until("the row alerts", `document.activeElement.closest("tbody")?.className.startsWith("alerting")
		&& document.activeElement.closest("tr").cells[4].textContent.includes("late")`)
	if name := ask[string](b, `document.activeElement.textContent`); name != "b" {
		t.Errorf("the focus is on %q, want b", name)
	}
	b.press("r")
	if got, name := b.names(), ask[string](b, `document.activeElement.textContent`); got[0] != "b" || name != "b" {
		t.Errorf("after r the rows are %q with the focus on %q", got, name)
	}
}

func TestMovedDeadlineIsMarked(t *testing.T) {
	s, b := four(t)
	const deadline = `document.querySelector("tbody:nth-of-type(5) td:nth-child(6) time").textContent`
	b.watch(deadline)
	s.put("d", lockrecord.FieldAlertAt, metadata.FormatTime(time.Now().Add(7*time.Hour)))
	b.until("the word", `seen.some((s) => s.value.startsWith("extended"))`)
	b.until("the new deadline", deadline+`.startsWith("in 7h")`)
}

func TestPausedPageStaysUnchanged(t *testing.T) {
	s, b := four(t)
	b.press("p")
	text := ask[string](b, `document.querySelector("[role=status]").innerText
		+ document.getElementById("every").selectedOptions[0].text`)
	if !strings.Contains(text, "paused, resume") || !strings.HasSuffix(text, "paused") {
		t.Errorf("a paused page says %q", text)
	}
	clock := ask[string](b, `document.getElementById("clock").textContent`)
	s.release("a")
	s.shown()
	b.pass(3 * time.Second)
	if got := b.names(); len(got) != 4 || ask[string](b, `document.getElementById("clock").textContent`) != clock ||
		ask[int](b, `document.querySelectorAll(".gone").length`) != 0 {
		t.Errorf("a paused page went on: %q", got)
	}
	seen := ask[bool](b, `(window.scrollTo(0, 9999),
		document.getElementById("paused").getBoundingClientRect().top >= 0)`)
	if !seen {
		t.Error("after scrolling down, nothing shows that the page is paused")
	}
	ask[bool](b, `(document.getElementById("paused").click(), true)`)
	b.until("the page goes on", `document.querySelector(".gone .name")?.textContent === "a"`)
}

func TestPendingResponseDoesNotChangeAPausedPage(t *testing.T) {
	s, b := four(t)
	ask[bool](b, `(window.held = new Promise((done) => { window.letGo = done; }),
		window.fetch = ((real) => async (...args) => {
			window.underWay = true;
			await window.held;
			const answer = await real(...args), text = await answer.text();
			answer.text = async () => (setTimeout(() => { window.read = true; }, 50), text);
			return answer;
		})(window.fetch), true)`)
	b.until("a request under way", `window.underWay`) // and none that began before
	s.release("a")
	s.shown()
	b.press("p")
	ask[bool](b, `(window.letGo(), true)`)
	b.until("the answer was read", `window.read`)
	if ask[int](b, `document.querySelectorAll(".gone").length`) != 0 {
		t.Error("an answer that came after the pause changed the page")
	}
	b.press("p")
	b.until("the page goes on", `document.querySelector(".gone .name")?.textContent === "a"`)
}

func TestLockPageFollowsItsLock(t *testing.T) {
	s, b := staged(t)
	s.hold(lock{name: "a", owner: "first", host: "h", held: time.Minute, alert: time.Hour, unlock: 9 * time.Hour,
		trace: goTrace})
	b.open(s.url + "lock?name=a")
	ask[bool](b, `(window.here = true, document.querySelector(".raw").closest("details").open = true)`)
	s.put("a", lockrecord.FieldAlertAt, metadata.FormatTime(time.Now().Add(-time.Minute)), lockrecord.FieldAlive,
		lockrecord.FormatAlive(time.Now(), "step 2"))
	b.until("the lock alerts", `document.querySelector(".lock-head").classList.contains("alerting")
		&& document.querySelector(".lock-head").textContent.includes("step 2")`)
	if !ask[bool](b, `window.here && document.querySelector(".raw").closest("details").open`) {
		t.Error("the page was reloaded, or has closed what was open")
	}
	s.release("a")
	b.until("the end of the hold", `!document.querySelector(".lock-head.alerting")`)
}

func TestOtherPagesUpdate(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.hold(lock{name: "a", owner: "first", host: "h", held: time.Minute, alert: time.Hour, unlock: 9 * time.Hour})
	waiting := newTab(t, s)
	waiting.open(s.url + "waiting")
	timeline := newTab(t, s)
	timeline.open(s.url + "timeline")
	history := newTab(t, s)
	history.open(s.url + "history")
	timeline.click(".fold summary")
	s.hold(lock{name: "b", owner: "second", host: "h", held: time.Minute, alert: time.Hour, unlock: 9 * time.Hour})
	s.wait("a", "third", "h", "waits", time.Second)
	waiting.until("the waiter", `document.querySelector("table.queues").textContent.includes("third")`)
	timeline.until("the bar, while the table stays open", `document.querySelector(".lanes")
		.textContent.includes("second") && document.querySelector("details[open]").textContent.includes("second")`)
	s.release("b")
	history.until("the ended hold", `document.querySelector("table.past")?.textContent.includes("second")`)
}

func TestSectionsUpdateAndStayOpen(t *testing.T) {
	s, b := staged(t)
	for _, owner := range []string{"calm", "quiet"} {
		s.hold(lock{name: owner + "/lock", owner: owner, host: "h", held: time.Minute, alert: time.Hour,
			unlock: 9 * time.Hour})
	}
	b.open(s.url)
	b.until("both locks", `document.getElementById("main").innerText.includes("2 locks")`)
	b.open(s.url + "?group=owner") // a single section would be open, and stay open
	b.until("two closed sections", `document.querySelectorAll("details.group:not([open])").length === 2`)
	b.fast()
	ask[bool](b, `(document.querySelector("[data-key=quiet]").open = true)`)
	s.hold(lock{name: "new/lock", owner: "new", host: "h", held: time.Minute, alert: -time.Minute,
		unlock: 9 * time.Hour})
	b.until("a third section on top",
		`document.querySelector("details.group[data-key=new]:first-child summary")?.textContent
			.includes("1 lock, 1 alerting")`)
	open := ask[string](b, `[...document.querySelectorAll("details.group[open]")].map((e) => e.dataset.key).join()`)
	if open != "quiet" {
		t.Errorf("open are %s", open)
	}
	s.alerts("calm/lock")
	b.until("a section says that a lock in it alerts",
		`document.querySelector("details:not([open])[data-key=calm] summary").textContent
			.includes("1 lock, 1 alerting")`)
	s.alerts("quiet/lock")
	b.until("an open section stays open", `document.querySelector("details[open][data-key=quiet] tbody.alerting")`)
}

func TestKeys(t *testing.T) {
	s, b := staged(t)
	s.night()
	b.open(s.url)
	b.until("the list", `document.querySelector(".locks")`)
	b.press("/")
	b.press("tenant\r")
	b.until("the filtered list", `location.search.includes("q=tenant")
		&& document.querySelectorAll(".locks .name").length === 1`)
	b.press("j\r")
	b.until("the lock page", `document.querySelector(".lock-head h1 .lock-name")?.textContent === "`+held+`"`)
	b.press("u")
	b.until("the filtered list again", `location.search.includes("q=tenant") && document.querySelector(".locks")`)
	b.press("gl")
	b.until("the whole list", `!location.search && document.querySelector(".locks")`)
	b.press("go")
	b.until("the list by owner", `location.search === "?group=owner" && document.querySelector("details.group")
		&& document.querySelector("nav [aria-current]").textContent === "Owners"`)
	b.press("gs")
	b.until("status", `location.pathname === "/status" && document.getElementById("h-etcd")`)
	b.press("gl")
	b.until("the list", `location.pathname === "/" && document.querySelector(".locks")`)
	b.press("?")
	b.until("help", `location.pathname === "/help" && document.getElementById("keys")`)
	themes := func(what, want string) {
		t.Helper()
		b.press("t")
		if got := ask[string](b, `document.documentElement.dataset.theme + " "
			+ getComputedStyle(document.body).backgroundColor`); got != want {
			t.Errorf("%s gives the theme %s", what, got)
		}
	}
	themes("t", "light rgb(255, 255, 255)")
	themes("t again", "dark rgb(18, 24, 31)")
	b.press("z")
	b.until("local time", `document.getElementById("zone").ariaPressed === "true"`)
	ask[bool](b, `(document.getElementById("keys").click(), true)`)
	themes("t, although keys are switched off,", "dark rgb(18, 24, 31)")
}

func TestScreenReadersHearChangesEveryTenSecondsAtMost(t *testing.T) {
	s, b := four(t)
	if text := ask[string](b, `document.querySelector("#news[aria-live=polite]").textContent`); text != "" {
		t.Errorf("before anything happens it is said %q", text)
	}
	b.watch(`document.getElementById("news").textContent`)
	s.alerts("c")
	b.until("the news", `document.getElementById("news").textContent.includes("1 silent")`)
	s.alerts("a")
	b.until("the row", `document.querySelectorAll("tbody.alerting").length === 2`)
	s.alerts("d")
	b.until("more news", `document.getElementById("news").textContent.includes("3 silent")`)
	for heard := b.seen()[1:]; len(heard) > 1; heard = heard[1:] {
		if soon := heard[1].At - heard[0].At; soon < 9900 {
			t.Errorf("%.1f s after %q comes %q: ears hear of nothing else then", soon/1000, heard[0].Value,
				heard[1].Value)
		}
	}
}

func TestPageShowsStalenessWhileEtcdIsUnreachable(t *testing.T) {
	s, b := staged(t)
	s.night()
	s.unlocker("alert-only")
	b.open(s.url)
	b.until("live", `document.body.className === "live"
		&& document.getElementById("fresh").textContent.includes("live")`)

	s.etcd.Stop()
	b.until("stale, and that it is said", `document.body.classList.contains("stale")
		&& document.getElementById("news").textContent.startsWith("etcd has not answered")`, 50*time.Second)
	grey := ask[string](b, `getComputedStyle(document.querySelector(".sheet")).filter
		+ getComputedStyle(document.querySelector(".sheet"), "::after").backgroundImage.slice(0, 9)`)
	if !strings.HasPrefix(grey, "saturate(0.4)repeating") {
		t.Errorf("the table looks as ever: %q", grey)
	}
	if icon := ask[string](b, `document.getElementById("icon").href`); !strings.Contains(icon, "state=stale") {
		t.Errorf("the icon is %s", icon)
	}
	if n := ask[int](b, `document.querySelectorAll(".locks .name").length`); n != 12 {
		t.Errorf("%d locks are left of the last known state, want 12", n)
	}
	b.open(s.url)
	b.until("it is said of a list that was opened since, too", `document.querySelector(".headline.stale")
		&& document.getElementById("news").textContent.startsWith("etcd has not answered")`)
	b.open(s.url + lockPage(held))
	b.until("the banner, of which ears hear once", `document.querySelector("[role=alert] [aria-live=off] time")`)
	b.open(s.url)

	s.etcd.Restart(t)
	b.until("live again", `document.body.className === "live" && !document.querySelector("#alerts .banner")`,
		40*time.Second)
	s.takes("after/the/outage", time.Hour)
	b.until("a lock taken after that", `document.querySelector(".locks").textContent.includes("after/the/outage")`)
}

func TestPageShowsThatTheDashboardIsUnreachable(t *testing.T) {
	s, b := four(t)
	s.kill()
	b.until("lost", `document.body.classList.contains("stale") &&
		document.querySelector("[role=alert] #lost[aria-live=off]")
			?.textContent.startsWith("Lost contact with the dashboard")`)
	b.watch(`document.getElementById("lost")?.textContent`)
	b.until("several tries", `seen.length > 8`)
	for _, said := range b.seen() {
		if strings.HasSuffix(said.Value, " 0s.") {
			t.Errorf("it tries again in no time: %q", said.Value)
		}
	}
	s.release("a")
	s.run()
	ask[bool](b, `(document.querySelector(".contact button")?.click(), true)`) // unless it has found it by itself
	b.until("found again", `!document.getElementById("lost") && document.body.className === "live"
		&& document.querySelector(".gone .name")?.textContent === "a"`)
}

func TestPageReportsNewBuildsAndExpiredLogins(t *testing.T) {
	s, b := four(t)
	ask[bool](b, `(document.getElementById("live").dataset.build = "older", true)`)
	s.release("a")
	b.until("the offer", `document.getElementById("build")?.parentElement.textContent
		=== "There is a new version of this page.reload"`)
	ask[bool](b, `(window.asked = 0, window.fetch = async () => (asked++, new Response("", {status: 401})), true)`)
	b.until("signed out", `document.querySelector("[role=alert] #out")?.textContent.startsWith("Signed out")
		&& document.body.classList.contains("stale")`)
	b.pass(3 * time.Second)
	if asked := ask[int](b, `asked`); asked != 1 {
		t.Errorf("a page that is signed out asked %d times", asked)
	}
}
