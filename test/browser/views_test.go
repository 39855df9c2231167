//go:build browser

package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// saved are the names of the saved views, from the top.
func (b *tab) saved() []string {
	b.t.Helper()
	return ask[[]string](b, `[...document.querySelectorAll(".views li a")].map((a) => a.textContent)`)
}

// menu opens the menu of saved views.
func (b *tab) menu() {
	b.t.Helper()
	b.until("the page has loaded", `document.readyState === "complete"`)
	ask[bool](b, `(document.getElementById("views").open = true)`)
	b.until("the menu", `document.querySelector("#views form")`)
}

// keep saves the page under a name.
func (b *tab) keep(name string) {
	b.t.Helper()
	b.menu()
	ask[bool](b, `(document.getElementById("view").value = "", true)`)
	b.do(typeInto("#view", name+"\r"))
	b.until("the saved view", fmt.Sprintf(
		`[...document.querySelectorAll(".views li a")].some((a) => a.textContent === %q)`, name))
}

func TestViewsAreSavedRenamedAndRemoved(t *testing.T) {
	s, b := staged(t)
	s.night()
	const hostile = `<img src=x onerror=alert(1)>"'{{.}}`
	b.open(s.url + "?q=owner:billing&sort=-held")
	b.keep("billing")
	b.open(s.url + "history?q=ended:alerted")
	b.keep(hostile)
	b.open(s.url)
	b.menu()
	if got := b.saved(); !slices.Equal(got, []string{"billing", hostile}) {
		t.Fatalf("the saved views are %q", got)
	}
	b.click(".views li a")
	b.until("the view", `location.search === "?q=owner:billing&sort=-held" &&
		document.querySelectorAll(".locks tbody").length === 1`)
	b.menu()
	b.click(`.views button[aria-label="Rename billing"]`)
	ask[bool](b, `(document.getElementById("view").value = "", true)`)
	b.do(typeInto("#view", "ours\r"))
	b.until("the new name", `document.querySelector(".views li a").textContent === "ours"`)
	b.click(`.views button[aria-label^="Remove <img"]`)
	b.until("one view", `document.querySelectorAll(".views li").length === 1`)
	ask[bool](b, axe+"; true")
	barriers := ask[[]string](b, `axe.run("#views").then((r) => r.violations.map((v) => v.help))`)
	if len(barriers) > 0 {
		t.Errorf("barriers: %q", barriers)
	}
	for _, width := range []int64{320, 360, 768, 861, 1100, 1280} {
		b.size(width, 800)
		if out := ask[bool](b, `(() => {
			const r = document.querySelector("#views > div").getBoundingClientRect();
			return r.left < 0 || r.right > innerWidth || document.documentElement.scrollWidth > innerWidth;
		})()`); out {
			t.Errorf("at %d px the menu does not fit", width)
		}
	}
	// what another program of this origin has written there is nothing to follow
	ask[bool](b, `(localStorage.setItem("views", JSON.stringify([{ name: "a", to: "javascript:alert(1)" },
		{ name: "b", to: "//evil.example/" }, { name: "c", to: "/waiting" }, 7, null])), true)`)
	b.open(s.url)
	b.menu()
	if got := b.saved(); len(got) != 0 {
		t.Errorf("of a store with something else in it, the page shows %q", got)
	}
	b.keep("mine")
	b.click(`.views button[aria-label="Remove mine"]`)
	b.until("nothing", `!localStorage.getItem("views")`)
}

// hears is a browser in which notifications are heard, and allowed when they are asked for.
const hears = `(() => {
	const heard = () => JSON.parse(sessionStorage.getItem("heard") || "[]");
	self.Notification = class extends EventTarget {
		static get permission() { return sessionStorage.getItem("allowed") || "default"; }
		static async requestPermission() {
			sessionStorage.setItem("asked", "yes");
			sessionStorage.setItem("allowed", "granted");
			return "granted";
		}
		constructor(title, options) {
			super();
			sessionStorage.setItem("heard", JSON.stringify([...heard(), title + "|" + options.body]));
		}
	};
})()`

func TestNewLockOfAViewIsNotifiedOnce(t *testing.T) {
	s, b := staged(t)
	b.check(second(chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: hears})))
	late := func(name string) {
		s.hold(lock{name: name, owner: "o", host: "h", held: time.Minute, alert: -time.Second, unlock: time.Hour})
	}
	late("old")
	s.hold(lock{name: "fine", owner: "o", host: "h", held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	b.open(s.url + "?q=state:alerting")
	b.until("the old one", `document.querySelectorAll(".locks tbody").length === 1`)
	b.keep("late")
	if ask[bool](b, `sessionStorage.getItem("asked") === "yes"`) {
		t.Fatal("the page asked for a permission without a request")
	}
	b.click(`.views button[aria-label="Notify: late"]`)
	b.until("on", `document.querySelector(".views [aria-label^=Notify]").ariaPressed === "true"`)
	late("new\u202ename")
	b.until("the notification", `sessionStorage.getItem("heard").includes("u202ename is held longer than its holder expected.|o on h took the lock new")`)
	b.open(s.url + "waiting") // another page, which goes on
	late("third")
	b.until("the notification on another page", `sessionStorage.getItem("heard").includes("Lock third is held longer")`)
	late("fourth")
	b.until("the next one", `sessionStorage.getItem("heard").includes("Lock fourth is held longer")`)
	heard := ask[[]string](b, `JSON.parse(sessionStorage.getItem("heard"))`)
	if len(heard) != 4 || !strings.HasPrefix(heard[0], "Notifications are on|") {
		t.Errorf("heard was %q, want the beginning and three locks", heard)
	}
	b.menu()
	b.click(`.views button[aria-label="Notify: late"]`)
	b.until("off", `document.querySelector(".views [aria-label^=Notify]").ariaPressed === "false" &&
		!localStorage.getItem("watched")`)
}

func TestNotificationButtonNeedsSupport(t *testing.T) {
	s, b := staged(t)
	b.check(second(chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: "delete self.Notification"})))
	b.open(s.url)
	if ask[bool](b, `performance.getEntriesByType("resource").some((e) => e.name.endsWith("/views.js"))`) {
		t.Error("the script of saved views was loaded without saved views")
	}
	b.keep("all")
	if n := ask[int](b, `document.querySelectorAll(".views [aria-label^=Notify]").length`); n != 0 {
		t.Errorf("there are %d buttons", n)
	}
}

// newStages starts three etcds and one mutexdash that shows them. The night is that of the first one.
func newStages(t testing.TB) (url string, stages []*stage) {
	t.Helper()
	layout := protocol.DefaultLayout()
	file := "clusters:\n"
	address := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	url = "http://" + address + "/"
	for _, c := range []string{"name: prod-eu, label: Production EU, colour: magenta",
		"name: prod-us, label: Production US, colour: indigo", "name: staging, colour: green"} {
		s := &stage{t: t, etcd: etcdtest.Start(t), layout: layout, url: url}
		s.client = s.etcd.Client(t)
		file += fmt.Sprintf("  - {%s, endpoints: [%q]}\n", c, s.etcd.Endpoint())
		stages = append(stages, s)
	}
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	proctest.Must(t, os.WriteFile(path, []byte(file), 0o600))
	stages[0].start("mutexdash", "--clusters="+path, "--web.listen-address="+address, "--web.ops-address="+ops,
		"--web.shutdown-delay=0s")
	proctest.Answers(t, "http://"+ops+"/readyz", http.StatusOK)
	for i, s := range stages {
		s.ops = ops
		s.sample = fmt.Sprintf("mutexdash_etcd_revision{cluster=%q}", []string{"prod-eu", "prod-us", "staging"}[i])
	}
	stages[0].night()
	for _, s := range stages[1:] {
		s.hold(lock{name: "billing/invoice-run", owner: "billing", host: "billing-5d9f7c6b8-k2x4p",
			purpose: "elsewhere", held: 6 * time.Minute, alert: 20 * time.Minute, unlock: time.Hour, alive: "12 of 90"})
	}
	stages[1].hold(lock{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p",
		purpose: "settles the orders of the day", held: 40 * time.Minute, alert: -20 * time.Minute,
		unlock: 4 * time.Minute})
	for i := range 9 {
		stages[1].wait("orders/settle", "checkout", fmt.Sprintf("checkout-%d", i), "next", time.Duration(i)*time.Minute)
	}
	for _, s := range stages {
		s.unlocker("alert-only")
	}
	return url, stages
}
