//go:build browser

package browser

import "testing"

func TestWhatWasTypedOutlivesTheLogin(t *testing.T) {
	t.Parallel()
	s := markingStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.act(s, "ask")
	b.until("the script", `performance.getEntriesByType("resource").some((e) => e.name.endsWith("/views.js"))
		&& document.querySelector("#views form")`)
	b.do(typeInto("#reason", "the deploy waits"), typeInto("#ticket", "OPS-12"))
	b.login("")
	ask[bool](b, `window.sent = true`)
	b.click(`form.force button[type="submit"]`)
	b.until("the refusal", `!window.sent && document.body.innerText.includes("Sign in")`)
	b.login("ann@example.org")
	b.act(s, "ask")
	b.until("what was typed", `document.getElementById("reason").value === "the deploy waits"
		&& document.getElementById("ticket").value === "OPS-12"`)
	b.act(s, "extend")
	b.until("the script", `document.querySelector("#views form")`)
	if typed := ask[string](b, `document.getElementById("reason").value`); typed != "" {
		t.Errorf("another form has %q", typed)
	}
}

func TestWithoutScriptsARefusedFormShowsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := markingStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.scripts(false)
	b.open(s.url + "lock?name=" + held)
	b.click(`.marks a[href*="/ask?"]`)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
	b.do(typeInto("#reason", "the deploy waits"), typeInto("#ticket", "OPS-12"))
	b.login("")
	b.click(`form.force button[type="submit"]`)
	b.until("the refusal", `document.readyState === "complete" && document.body.innerText.includes("Sign in")`)
	b.says("the deploy waits")
	b.says("OPS-12")
	b.login("ann@example.org")
	// The way back through the history of the browser leads to an empty form: pages are not stored.
	b.click(`.oops a[href*="/ask?"]`)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
	b.do(typeInto("#reason", "the deploy waits"))
	b.click(`form.force button[type="submit"]`)
	b.until("the page of the lock", `document.readyState === "complete" && !document.querySelector("form.force")`)
	b.says("asked by ann@example.org")
}
