//go:build browser

package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// tab is a page in its own profile. At the end of a test, nothing may have violated the content security policy, and no
// script may have failed.
type tab struct {
	t   testing.TB
	ctx context.Context
	of  []*stage // what it opens shows all that was written there
	// scriptless says that JavaScript is off.
	scriptless bool
	mu         sync.Mutex
	trouble    []string
}

func newTab(t testing.TB, of ...*stage) *tab {
	t.Helper()
	b := &tab{t: t, of: of}
	ctx, end := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b.ctx = ctx
	b.check(chromedp.Do(ctx))
	b.check(chromedp.Listen(ctx, b.listen))
	b.check(second(chromedp.Call(ctx, log.Enable, cdp.Empty{})))
	b.check(second(chromedp.Call(ctx, runtime.Enable, cdp.Empty{})))
	b.size(1300, 800)
	t.Cleanup(func() {
		if trouble := b.troubles(); len(trouble) > 0 {
			t.Errorf("the browser complained:\n%s", strings.Join(trouble, "\n"))
		}
	})
	return b
}

// listen collects the browser's complaints. Failed requests do not count, because some tests cut the connection.
func (b *tab) listen(event any) {
	var complaint string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			complaint = e.Entry.Text
		}
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			complaint += " " + thrown.Description
		}
	}
	if complaint == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = append(b.trouble, complaint)
}

// troubles returns the complaints since the last call.
func (b *tab) troubles() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.trouble
	b.trouble = nil
	return all
}

func (b *tab) check(err error) {
	b.t.Helper()
	proctest.Must(b.t, err)
}

func second[T any](_ T, err error) error { return err }

// do runs steps, with a time limit.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, proctest.Timeout)
	defer cancel()
	b.check(chromedp.Do(ctx, steps...))
}

// open opens a page and waits until its scripts have run. The page shows everything that its stages have written.
func (b *tab) open(url string) {
	b.t.Helper()
	for _, s := range b.of {
		s.shown()
	}
	b.do(chromedp.Navigate(url))
}

// press types keys like a keyboard: a key handled by a script writes no character. It waits for the scripts.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.until("the page has loaded", `document.readyState === "complete"`)
	for _, r := range keys {
		events := kb.Encode(r)
		down := *events[0]
		up := *events[len(events)-1]
		down.Type = input.DispatchKeyEventTypeKeyDown
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		for _, event := range []input.DispatchKeyEventParams{down, up} {
			b.check(second(chromedp.Call(b.ctx, input.DispatchKeyEvent, event)))
		}
	}
}

// point moves the pointer to the center of an element.
func (b *tab) point(selector string) {
	b.t.Helper()
	at := ask[[]float64](b, fmt.Sprintf(`(() => {
		const r = document.querySelector(%q).getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector))
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, proctest.Timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// until waits until the expression is true.
func (b *tab) until(what, expression string, limit ...time.Duration) {
	b.t.Helper()
	wait := proctest.Timeout
	for _, l := range limit {
		wait = l
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(b.ctx, proctest.Timeout)
		// this fails while a page is being replaced
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if yes {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %v (%v); the page says:\n%s", what, wait, err,
				ask[string](b, "document.title + '\\n' + document.body.innerText"))
		}
	}
}

// says waits until an updating page contains a text.
func (b *tab) says(words string) {
	b.t.Helper()
	b.until(words, fmt.Sprintf(`document.getElementById("main").innerText.includes(%q)`, words))
}

// sight is the value of an expression in a page from a moment on, in milliseconds.
type sight struct {
	At    float64 `json:"at"`
	Value string  `json:"value"`
}

// watch records all values of an expression from now on, even brief ones, so that a busy machine misses none. Only one
// watch runs at a time, until another page is opened.
func (b *tab) watch(expression string) {
	b.t.Helper()
	ask[bool](b, `(() => {
		const see = () => String(`+expression+`), seen = window.seen = [{ at: performance.now(), value: see() }];
		new MutationObserver(() => {
			const value = see();
			if (value !== seen.at(-1).value) seen.push({ at: performance.now(), value });
		}).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
		return true;
	})()`)
}

// seen returns the values of the watched expression so far.
func (b *tab) seen() []sight {
	b.t.Helper()
	return ask[[]sight](b, "window.seen")
}

// pass lets time pass in the page, during which something must not happen.
func (b *tab) pass(d time.Duration) {
	b.t.Helper()
	ask[bool](b, fmt.Sprintf(`new Promise((done) => setTimeout(() => done(true), %d))`, d.Milliseconds()))
}

// size sets the inner size of the window.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.dense(width, height, 1)
}

// dense sets the inner size of the window and the device pixel ratio.
func (b *tab) dense(width, height int64, points float64) {
	b.t.Helper()
	b.check(second(chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: points,
			Mobile: width < 600})))
}

// prefer sets user preferences: pairs of a media feature and its value.
func (b *tab) prefer(pairs ...string) {
	b.t.Helper()
	var features []*emulation.MediaFeature
	for pair := range slices.Chunk(pairs, 2) {
		features = append(features, &emulation.MediaFeature{Name: pair[0], Value: pair[1]})
	}
	b.check(second(chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: features})))
}

func (b *tab) theme(name string) {
	b.t.Helper()
	b.prefer("prefers-color-scheme", name)
}

// scripts switches JavaScript on or off.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	b.scriptless = !on
	b.check(second(chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: !on})))
}

// names returns the locks in the list, from the top.
func (b *tab) names() []string {
	b.t.Helper()
	return ask[[]string](b, `[...document.querySelectorAll(".locks .name")].map((a) => a.textContent)`)
}

// typeInto types into a field, even with scripts disabled.
func typeInto(selector, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(selector, text)
}
