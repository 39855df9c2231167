//go:build browser

package browser

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// gentleStage is a stage whose mutexdash lets ann ask holders to finish and give them more time.
func gentleStage(t *testing.T) *stage {
	t.Helper()
	permissions := filepath.Join(t.TempDir(), "permissions.yaml")
	if err := os.WriteFile(permissions,
		[]byte("everyone: [view]\nusers: {ann@example.org: [ask, extend, audit]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newStage(t, "--web.identity=header", "--web.trusted-proxies=127.0.0.1",
		"--web.permissions-file="+permissions, "--web.enable-ask-and-extend")
}

// act goes from the page of the lock to a form, by where its link leads.
func (b *tab) act(s *stage, link string) {
	b.t.Helper()
	b.open(s.url + "lock?name=" + held)
	b.click(`.gentle a[href*="/` + link + `?"]`)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
}

// send sends the form off, and waits for the page of the lock.
func (b *tab) send(reason string) {
	b.t.Helper()
	b.do(typeInto("#reason", reason))
	b.click(`form.force button[type="submit"]`)
	b.until("the page of the lock", `document.readyState === "complete" && !document.querySelector("form.force")`)
}

func TestAPersonAsksTheHolderToFinishAndGivesItMoreTime(t *testing.T) {
	s := gentleStage(t)
	b := newTab(t)
	s.night()
	b.login("ann@example.org")
	b.size(360, 740)

	b.act(s, "ask")
	b.narrow()
	b.send("the deploy waits")
	b.until("the request on the page", `document.body.innerText.includes('asked by ann@example.org')`)
	before := s.record(held)
	if before.Asked == nil || before.Asked.Reason != "the deploy waits" {
		t.Fatalf("the record has %+v", before.Asked)
	}

	b.act(s, "extend")
	b.narrow()
	b.click(`input[name="more"][value="own"]`)
	b.do(typeInto(`input[name="own"]`, "45m"))
	b.send("the disk is slow")
	b.until("the extension on the page", `document.body.innerText.includes('ann@example.org gave 45m more')`)
	after := s.record(held)
	if after.Extended == nil || after.Extended.Given() != 45*time.Minute ||
		!after.AutoUnlockAt.After(before.AutoUnlockAt) {
		t.Errorf("the record has %+v, and its deadline is %v, was %v", after.Extended, after.AutoUnlockAt,
			before.AutoUnlockAt)
	}

	b.open(s.url + "audit")
	for _, words := range []string{"asked to finish", "gave 45m more"} {
		if page := ask[string](b, `document.body.innerText`); !strings.Contains(page, words) {
			t.Errorf("the audit does not say %q: %s", words, page)
		}
	}
}

// narrow checks that nothing overflows the window.
func (b *tab) narrow() {
	b.t.Helper()
	if wide := ask[int](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		b.t.Errorf("the page is %d pixels too wide", wide)
	}
}

// record is the record of the lock as it stands in etcd.
func (s *stage) record(lock string) *metadata.Record {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	document, _, err := lockstore.New(s.client, s.layout).Get(ctx, lock)
	if err != nil {
		s.t.Fatal(err)
	}
	return &document.Record
}
