//go:build browser

package browser

import (
	"strings"
	"testing"
	"time"
)

func TestPageSaysThatItIsOldWhileEtcdIsAwayAndRecovers(t *testing.T) {
	t.Parallel()
	s := unlockStage(t)
	b := newTab(t, s)
	asking := newTab(t, s)
	s.night()
	s.unlocker("alert-only")
	b.login("bob@example.org")
	asking.login("ann@example.org")
	asking.confirm(s)
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
	if text := ask[string](b, `document.querySelector(".verdict").textContent`); !strings.Contains(text,
		"etcd has not answered for ") || !strings.Contains(text, "What you see is from ") {
		t.Errorf("the answer does not say of when it is: %q", text)
	}
	if icon := ask[string](b, `document.getElementById("icon").href`); !strings.Contains(icon, "look=stale") {
		t.Errorf("the icon is %s", icon)
	}
	if n := ask[int](b, `document.querySelectorAll(".locks tbody").length`); n != 12 {
		t.Errorf("%d locks are left of the last known state, want 12", n)
	}

	asking.fill(held, "the pod is gone, see the ticket")
	asking.says("Not while the data is stale")

	s.etcd.Restart(t)
	b.until("live again", `document.body.className === "live" && !document.querySelector("#alerts .banner")`,
		40*time.Second)
	if !s.held(held) {
		t.Error("the refused force unlock ended the hold")
	}
	s.hold(lock{name: "after/the/outage", owner: "o", host: "h", held: time.Second, alert: time.Hour,
		unlock: time.Hour})
	b.until("a lock taken after that", `document.querySelector(".locks").textContent.includes("after/the/outage")`)
}

func TestPageSaysThatTheDashboardIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	s, b := four(t)
	s.kill()
	b.until("lost", `document.body.classList.contains("stale") && document.querySelector("[role=alert] #lost")
		?.textContent.startsWith("Lost contact with the dashboard")`)
	s.release("a")
	s.run()
	ask[bool](b, `(document.querySelector(".contact button")?.click(), true)`) // unless it has found it by itself
	b.until("found again", `!document.getElementById("lost") && document.body.className === "live"
		&& document.querySelector(".gone .name")?.textContent === "a"`)
}

func TestPageSaysThatTheLoginHasEndedAndStopsAsking(t *testing.T) {
	t.Parallel()
	_, b := four(t)
	ask[bool](b, `(window.asked = 0, window.fetch = async () => (asked++, new Response("", {status: 401})), true)`)
	b.until("signed out", `document.querySelector("[role=alert] #out")?.textContent.startsWith("Signed out")
		&& document.body.classList.contains("stale")`)
	b.pass(3 * time.Second)
	if asked := ask[int](b, `asked`); asked != 1 {
		t.Errorf("a page that is signed out asked %d times", asked)
	}
}

func TestPageSaysThatThereIsANewBuild(t *testing.T) {
	t.Parallel()
	s, b := four(t)
	ask[bool](b, `(document.getElementById("live").dataset.build = "older", true)`)
	s.release("a")
	b.until("the offer", `document.getElementById("build")?.parentElement.textContent
		=== "There is a new version of this page.reload"`)
}
