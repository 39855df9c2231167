//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// operators is a stage whose mutexdash lets ann do what these rights and flags let her.
func operators(t *testing.T, rights string, flags ...string) *stage {
	t.Helper()
	permissions := filepath.Join(t.TempDir(), "permissions.yaml")
	if err := os.WriteFile(permissions,
		[]byte("everyone: [view, backtrace]\nusers: {ann@example.org: ["+rights+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newStage(t, append(flags, "--web.identity=header", "--web.trusted-proxies=127.0.0.1",
		"--web.permissions-file="+permissions)...)
}

// unlockStage is a stage of a test that runs beside others, whose mutexdash lets ann end holds.
func unlockStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	return operators(t, "unlock, audit", "--web.enable-force-unlock")
}

// login sends the tab through a proxy that knows the user.
func (b *tab) login(name string) {
	b.t.Helper()
	b.check(second(chromedp.Call(b.ctx, network.Enable, network.EnableParams{})))
	b.check(second(chromedp.Call(b.ctx, network.SetExtraHTTPHeaders,
		network.SetExtraHTTPHeadersParams{Headers: network.Headers{"X-Forwarded-User": name}})))
}

// click clicks on an element, and again if the live page replaced or moved it after it was found, when nothing, or
// something else, was clicked.
func (b *tab) click(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, proctest.Timeout)
	defer cancel()
	var err error
	for range 10 {
		if !b.scriptless {
			ask[bool](b, fmt.Sprintf(`(window.missed = true, document.addEventListener("click", (e) => {
				if (e.target.closest(%q)) window.missed = false;
			}, { capture: true, once: true }))`+" || true", selector))
		}
		err = chromedp.Do(ctx, chromedp.Click(selector))
		if err != nil {
			continue
		}
		// no answer while a page is being replaced
		missed, gone := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!window.missed"))
		if gone != nil || !missed {
			return
		}
	}
	b.t.Fatalf("%s cannot be clicked: %v", selector, err)
}

const held = "billing/invoice-run"

// confirm goes from the page of the lock to the confirmation.
func (b *tab) confirm(s *stage) { b.form(s, ".last a") }

// form opens the page of the lock and goes on to the form behind a link.
func (b *tab) form(s *stage, link string) {
	b.t.Helper()
	b.open(s.url + "lock?name=" + held)
	b.click(link)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
}

func TestFormHeaderFollowsTheLock(t *testing.T) {
	s := unlockStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.confirm(s)
	const reason = "the pod is gone, see the ticket"
	b.do(typeInto("#reason", reason))
	head := func(what, words string) {
		t.Helper()
		b.until(what, fmt.Sprintf(`document.querySelector(".lock-head").textContent.includes(%q)`, words))
	}
	s.release(held)
	head("that the hold is over", "This hold ended")
	s.hold(lock{name: held, owner: "crm", host: "crm-1", held: time.Second, alert: time.Hour, unlock: 2 * time.Hour})
	head("who has the lock now", "Held by crm on crm-1")
	if heading := ask[string](b, `document.querySelector("h1").textContent`); !strings.Contains(heading,
		"Force unlock "+held) {
		t.Errorf("the heading is %q", heading)
	}
	if typed := ask[string](b, `document.querySelector("#reason").value`); typed != reason {
		t.Errorf("what was typed is now %q", typed)
	}
}

func TestFormOpensAtTheTopWithCancelFocused(t *testing.T) {
	s := unlockStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.size(360, 740)
	for _, scripts := range []bool{true, false} {
		b.scripts(scripts)
		b.confirm(s)
		b.until("the focus on what cancels", `document.activeElement.textContent.includes("Cancel: ")`)
		b.until("the beginning of the page",
			`scrollY === 0 && document.querySelector(".lock-head h1").getBoundingClientRect().top > 0`)
	}
}

// act goes from the page of the lock to a form, by where its link leads.
func (b *tab) act(s *stage, link string) { b.form(s, `:is(.todo, .actions) a[href*="/`+link+`?"]`) }

// send sends the form off, and waits for the page of the lock.
func (b *tab) send(reason string) {
	b.t.Helper()
	b.do(typeInto("#reason", reason))
	b.click(`form.force button[type="submit"]`)
	b.until("the page of the lock", `document.readyState === "complete" && !document.querySelector("form.force")`)
}

// formScript waits until the script of forms has run.
func (b *tab) formScript() {
	b.t.Helper()
	const loaded = `performance.getEntriesByType("resource").find((e) => e.name.endsWith("/forms.js"))`
	b.until("the script", loaded)
	ask[bool](b, `import(`+loaded+`.name).then(() => true)`)
}

func TestTypedTextSurvivesALogin(t *testing.T) {
	s, b := everything(t)
	s.night()
	b.act(s.stage, "ask")
	b.formScript()
	b.do(typeInto("#reason", "the deploy waits"), typeInto("#ticket", "OPS-12"))
	b.login("")
	ask[bool](b, `window.sent = true`)
	b.click(`form.force button[type="submit"]`)
	b.until("the refusal", `!window.sent && document.body.innerText.includes("Sign in")`)
	b.login("ann@example.org")
	b.act(s.stage, "ask")
	b.until("what was typed", `document.getElementById("reason").value === "the deploy waits"
		&& document.getElementById("ticket").value === "OPS-12"`)
	b.act(s.stage, "extend")
	b.formScript()
	if typed := ask[string](b, `document.getElementById("reason").value`); typed != "" {
		t.Errorf("another form has %q", typed)
	}
}
