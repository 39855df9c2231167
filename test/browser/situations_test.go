//go:build browser

package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// What a person may find, each at five widths. Nothing may stand out of the window or keep anybody out: axe looks at
// the widest in light and at the narrowest in dark.

// situations shows pages.
type situations struct {
	*stage
	b *tab
}

// windows are the sizes of a notebook's window, half a screen, a tablet, a phone, and that notebook at 400 %.
var windows = [][2]int64{{1280, 800}, {960, 800}, {768, 800}, {360, 800}, {320, 640}}

// show looks at a page. ready is true when it shows what it is to show.
func (s *situations) show(name, page, ready string, then ...func()) {
	s.t.Helper()
	b := s.b
	b.theme("light")
	b.size(1280, 800)
	b.open(s.url + page)
	b.until(name, `document.readyState === "complete" && (`+ready+`)`)
	for _, do := range then {
		do()
	}
	ask[bool](b, axe+"; true")
	s.barriers(name, "light")
	for _, w := range windows {
		b.size(w[0], w[1])
		s.fits(name, w[0])
	}
	b.theme("dark")
	s.barriers(name, "dark")
}

// fits checks that a page is no wider than its window, and breaks no words where it need not.
func (s *situations) fits(name string, width int64) {
	s.t.Helper()
	if wide := ask[int64](s.b, `document.documentElement.scrollWidth`); wide > width {
		s.t.Errorf("%s: %d px wide in a window of %d px, because of %q", name, wide, width,
			ask[[]string](s.b, fmt.Sprintf(tooWide, width)))
	}
	if width < 360 {
		return // that it is no wider is all that can be asked for
	}
	if broken := ask[[]string](s.b, brokenWords); len(broken) > 0 {
		s.t.Errorf("%s: at %d px words are broken: %q", name, width, broken)
	}
	if cut := ask[[]string](s.b, cutOff); len(cut) > 0 {
		s.t.Errorf("%s: at %d px times are cut off: %q", name, width, cut)
	}
}

// tooWide are the innermost elements that end to the right of a window of this width.
const tooWide = `[...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > %d)
	.filter((e, _, all) => !all.some((inner) => inner !== e && e.contains(inner)))
	.map((e) => e.outerHTML.slice(0, 200))`

// cutOff are the times of lists that are not seen as a whole.
const cutOff = `[...document.querySelectorAll(".locks td > time")]
	.filter((e) => e.checkVisibility() && [e, e.parentElement].some((x) => x.scrollWidth > x.clientWidth))
	.map((e) => e.textContent)`

// brokenWords are the heads of columns, numbers, times and, in the audit, locks, people and actions that have more
// lines than words.
const brokenWords = `[...document.querySelectorAll(
	"thead th, td.num, td > time, .audit tbody th > a, .audit td > b, .audit td:nth-child(3)")].filter((e) => {
	const r = document.createRange();
	r.selectNodeContents(e);
	const lines = new Set([...r.getClientRects()].filter((c) => c.width > 0).map((c) => Math.round(c.top / 8)));
	return e.checkVisibility() && lines.size > e.textContent.trim().split(/\s+/).length;
}).map((e) => e.textContent)`

func (s *situations) barriers(name, theme string) {
	s.t.Helper()
	for _, barrier := range ask[[]string](s.b,
		`axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " +
		v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message || "")).join("\n")))`) {
		s.t.Errorf("%s, %s: %s", name, theme, barrier)
	}
}

// everything is a stage of a test that runs beside others, on which ann may do everything.
func everything(t *testing.T) (*situations, *tab) {
	t.Helper()
	t.Parallel()
	s := &situations{stage: operators(t, "unlock, ask, extend, acknowledge, audit", "--web.enable-force-unlock",
		"--web.enable-ask-and-extend", "--web.enable-acknowledge",
		"--web.link=logs=https://logs.example/search?q={host}", "--web.alertmanager-url=https://alerts.example/")}
	s.b = newTab(t, s.stage)
	s.b.login("ann@example.org")
	return s, s.b
}

func lockPage(name string) string { return "lock?name=" + url.QueryEscape(name) }

// settle is a lock that alerts and blocks as many.
func (s *situations) settle(waiters int) string {
	s.t.Helper()
	id := s.hold(lock{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p", pid: "1", trace: goTrace,
		purpose: "settlement of the day, batch 12 of 40", held: 137 * time.Minute, alert: -77 * time.Minute,
		unlock: 4*time.Minute + 30*time.Second, alive: "order 4,410 of 12,002"})
	for i := range waiters {
		s.wait("orders/settle", "checkout", fmt.Sprintf("checkout-%d", i), "settles the order of a customer",
			40*time.Minute-time.Duration(i)*time.Second)
	}
	return id
}

func TestSituationsOfLocks(t *testing.T) {
	s, _ := everything(t)
	s.wait("free/for-long", "mailer", "mailer-3", "newsletter", 46*time.Minute) // is unclaimed by the end
	s.unlocker("alert-only")
	const list = `document.querySelector(".locks tbody")`
	id := s.settle(94)
	s.show("lock-94-waiters", lockPage("orders/settle"),
		`document.querySelector(".lock-head").innerText.includes("94 waiting")`)
	s.do(clientv3.OpPut(s.layout.Death(id), protocol.Marshal(metadata.Statement{Name: "orders/settle", UUID: id,
		Token: s.record("orders/settle").Token, Cause: metadata.CauseContainerEnded, ExitCode: new(137),
		Detail: "OOMKilled", Reason: "container worker of pod orders/orders-7c9d8f6b5-x2k7p ended",
		EndedAt: metadata.Time{Time: time.Now().Add(-40 * time.Second)}, Witness: metadata.WitnessKubernetes,
		By: "unlocker-7c9d8", At: metadata.Time{Time: time.Now()}})))
	s.show("list-dead-holder", "", list+` && document.querySelector("tbody.abandoned")`)
	s.show("lock-dead-holder", lockPage("orders/settle"), `document.body.innerText.includes("OOMKilled")`)

	s.night()
	s.nights()
	s.show("lock-slow", lockPage(held), `document.querySelector(".figures").innerText.includes("holds seen")`)
	s.circle()
	s.show("lock-waits", lockPage("shop/stock"), `document.querySelector(".cycle")`)
	s.show("lock-semaphore", lockPage("media/transcoders"), `document.querySelectorAll(".locks .name").length === 2`)
	s.show("lock-malformed", lockPage("reports/weekly"), `document.querySelector(".badge.malformed")`)
	s.hostile()
	s.show("lock-hostile", lockPage(hostileName), `document.querySelector(".lock-head .esc")`)
	s.show("form-hostile", "unlock?name="+url.QueryEscape(hostileName), `document.querySelector("form.force")`)
	s.show("lock-nobody", lockPage("nobody/holds/this"), `document.querySelector(".lock-head")`)

	delayed := s.delayed("billing/close")
	s.show("lock-delay", lockPage("billing/close"), `document.body.innerText.includes("lock delay")`)
	s.show("form-end-delay", "end-delay?name=billing/close&hold="+delayed, `document.querySelector("form.force")`)

	s.show("form-force-unlock", "unlock?name="+held, `document.querySelector("form.force")`)
	for _, form := range []string{"ask", "extend", "acknowledge"} {
		s.show("form-"+form, form+"?name="+held, `document.querySelector("form.force")`)
		s.b.send("looking at the disk of its node")
	}
	s.show("lock-asked-extended-acknowledged", lockPage(held),
		`document.body.innerText.includes("ann@example.org is looking at it until")`)
	s.show("form-withdraw", "acknowledge?name="+held, `document.querySelector("button[name=withdraw]")`)

	ended := s.record("catalog/sync/eu").UUID
	s.b.open(s.url) // the dashboard sees the hold before it ends
	s.b.until("the lock", `document.querySelector(".locks").innerText.includes("catalog/sync/eu")`)
	s.release("catalog/sync/eu")
	s.b.until("that it has ended", `fetch("/lock?name=catalog/sync/eu&hold=`+ended+`").then((r) => r.text())
		.then((t) => window.over = t.includes("released")) && window.over`)
	s.show("lock-ended", lockPage("catalog/sync/eu")+"&hold="+ended, `document.querySelector(".badge.released")`)
	s.show("lock-free", lockPage("catalog/sync/eu"),
		`document.querySelector(".lock-head").innerText.includes("Last held by")`)
	s.b.open(s.url + lockPage("free/for-long"))
	s.b.until("that nobody takes it", `document.body.innerText.includes("has not taken it")`, time.Minute)
	s.show("lock-unclaimed", lockPage("free/for-long"), `document.body.innerText.includes("has not taken it")`)
}

func TestSituationsOfLists(t *testing.T) {
	s, _ := everything(t)
	s.wait("free/for-long", "mailer", "mailer-3", "newsletter", 46*time.Minute)
	const list = `document.querySelector(".locks tbody")`
	s.show("list-empty-no-unlocker", "", `document.querySelector(".empty")`)
	s.unlocker("alert-only")
	s.show("list-empty", "", `document.querySelector(".headline").innerText.includes("no locks are held")`)
	s.settle(94)
	s.night()
	s.nights()
	s.hostile()
	s.show("list-94-waiters", "", list+` && document.querySelector(".locks").innerText.includes("94")`)
	s.show("list-hostile", "?q=owner:img", list)
	s.show("list-paused", "", list, func() { s.b.press("p") })
	s.show("list-grouped", "?group=owner", `document.querySelector("details.group")`)
	s.show("list-nothing", "?q=nothing:matches+owner:this", `document.querySelector(".empty")`)
	s.circle()
	s.show("waiting", "waiting", `document.querySelector(".cycle")`)
	s.release(hostileName)
	s.show("history", "history", `document.querySelector("table.past").textContent.includes("<img src")`)
	s.do(clientv3.OpPut(s.layout.Prefix()+"."+strings.Repeat("nobreak", 40), "x"))
	s.show("status", "status", `document.querySelector("#h-foreign")`)
	s.show("help", "help", `document.querySelector("main h2")`)
	s.b.open(s.url + "acknowledge?name=" + held)
	s.b.send("the deploy waits")
	s.show("audit", "audit", `document.querySelector("main table")`)
	s.show("list-unclaimed", "?q=drm", list)
	s.show("not-found", "nothing/here", `document.querySelector("main h1")`)

	s.etcd.Stop()
	s.b.size(1280, 800)
	s.b.open(s.url)
	s.b.until("stale", `document.body.classList.contains("stale")`, 90*time.Second)
	s.show("list-stale", "", list+` && document.querySelector(".headline.stale")`)
	s.show("lock-stale", lockPage("orders/settle"), `document.querySelector(".banner")`)
	for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
		s.show("form-stale-"+form, form+"?name="+held, `document.querySelector(".banner")`)
	}
}
