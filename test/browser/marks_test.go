//go:build browser

package browser

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// markingStage is a stage whose mutexdash lets ann ask holders to finish and give them more time.
func markingStage(t *testing.T) *stage {
	t.Helper()
	permissions := filepath.Join(t.TempDir(), "permissions.yaml")
	if err := os.WriteFile(permissions,
		[]byte("everyone: [view]\nusers: {ann@example.org: [ask, extend, acknowledge, audit]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newStage(t, "--web.identity=header", "--web.trusted-proxies=127.0.0.1",
		"--web.permissions-file="+permissions, "--web.enable-ask-and-extend", "--web.enable-acknowledge")
}

// act goes from the page of the lock to a form, by where its link leads.
func (b *tab) act(s *stage, link string) {
	b.t.Helper()
	b.open(s.url + "lock?name=" + held)
	b.click(`.marks a[href*="/` + link + `?"]`)
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
	t.Parallel()
	s := markingStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.size(360, 740)

	b.act(s, "ask")
	b.narrow()
	b.send("the deploy waits")
	b.says("asked by ann@example.org")
	before := s.record(held)
	if before.Asked == nil || before.Asked.Reason != "the deploy waits" {
		t.Fatalf("the record has %+v", before.Asked)
	}

	b.act(s, "extend")
	b.narrow()
	b.click(`input[name="more"][value="own"]`)
	b.do(typeInto(`input[name="own"]`, "45m"))
	b.send("the disk is slow")
	b.says("ann@example.org gave 45m more")
	after := s.record(held)
	if after.Extended == nil || after.Extended.Given() != 45*time.Minute ||
		!after.AutoUnlockAt.After(before.AutoUnlockAt) {
		t.Errorf("the record has %+v, and its deadline is %v, was %v", after.Extended, after.AutoUnlockAt,
			before.AutoUnlockAt)
	}

	b.open(s.url + "audit")
	for _, words := range []string{"asked to finish", "gave 45m more"} {
		b.says(words)
	}
}

// An acknowledgement survives the dashboard, is seen by everybody without a reload, and goes with its lease.
func TestAPersonAcknowledgesALock(t *testing.T) {
	t.Parallel()
	s := markingStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.size(360, 740)

	b.act(s, "acknowledge")
	b.narrow()
	b.click(`input[name="more"][value="own"]`)
	b.do(typeInto(`input[name="own"]`, "10m"))
	b.send("looking at <b>the disk</b>")
	b.says("ann@example.org looks at it until")
	b.narrow()
	first := s.record(held).Acknowledged
	if first == nil || first.Note != "looking at <b>the disk</b>" ||
		first.Until.Sub(first.At.Time) != 10*time.Minute {
		t.Fatalf("the record has %+v", first)
	}

	s.kill()
	s.kill = s.run()
	b.open(s.url + "?q=acknowledged-by:ann")
	b.until("the chip in the list",
		`document.querySelector(".more .chip")?.innerText.startsWith("ann@example.org until")`)
	b.narrow()
	b.expires(s)
	b.until("the chip is gone", `!document.querySelector(".more .chip")`)

	b.act(s, "acknowledge")
	b.send("")
	b.act(s, "acknowledge")
	b.says("Yours replaces the")
	b.click(`button[name="withdraw"]`)
	b.until("the page of the lock", `document.readyState === "complete" && !document.querySelector("form.force")`)
	if left := s.record(held).Acknowledged; left != nil {
		t.Errorf("after the withdrawal, the record has %+v", left)
	}

	b.open(s.url + "audit")
	for _, words := range []string{"acknowledged for 10m", "withdrew an acknowledgement"} {
		b.says(words)
	}
}

// expires ends the lease of the acknowledgement, as its end would.
func (b *tab) expires(s *stage) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	got, err := s.client.Get(ctx, s.layout.Field(held, metadata.FieldAcknowledged))
	if err != nil || len(got.Kvs) != 1 {
		b.t.Fatal(got, err)
	}
	_, err = s.client.Revoke(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
	b.check(err)
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
