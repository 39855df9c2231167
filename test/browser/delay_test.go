//go:build browser

package browser

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// delay ends the hold of the lock by force, with a lock delay after it.
func (s *stage) delay(lock string, d time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	record := s.record(lock)
	action := protocol.Action{ID: "1", At: metadata.Time{Time: time.Now()}, Actor: "bob",
		Lock: lock, UUID: record.UUID, Token: record.Token,
		Reason: "node-3 is lost"}
	on := protocol.Subject{Hold: record, Follows: d}
	_, err := lockstore.New(s.client, s.layout).Do(ctx, protocol.ActionForceUnlock, on, action)
	if err != nil {
		s.t.Fatal(err)
	}
}

// delayed leaves a lock that nobody holds in a lock delay, and returns the hold that this follows.
func (s *stage) delayed(lock string) (hold string) {
	s.t.Helper()
	hold = uuid.NewString()
	lease, err := s.client.Grant(s.t.Context(), 600)
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(clientv3.OpPut(s.layout.Delay(lock), protocol.Marshal(metadata.Delay{Lock: lock, UUID: hold, Token: 3,
		Owner: "billing", Hostname: "billing-3", Ended: metadata.EndedForced, By: "bob@example.org",
		At: metadata.Time{Time: time.Now()}, Seconds: 600}), clientv3.WithLease(lease.ID)))
	return hold
}

// endDelay is the page that asks whether to end it.
func endDelay(lock, hold string) string {
	return "end-delay?name=" + url.QueryEscape(lock) + "&hold=" + hold
}

// delays are the lock delays in etcd.
func (s *stage) delays(lock string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	list, _, err := lockstore.New(s.client, s.layout).Delays(ctx, lock)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list)
}

func TestAPersonEndsALockDelay(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string]bool{"with scripts": true, "without scripts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endsADelay(t, scripts)
		})
	}
}

func endsADelay(t *testing.T, scripts bool) {
	t.Helper()
	s := unlockStage(t)
	b := newTab(t, s)
	b.scripts(scripts)
	s.night()
	s.delay(held, 10*time.Minute)
	b.login("ann@example.org")
	b.size(360, 740)
	b.open(s.url + "lock?name=" + held)
	b.says("There is a lock delay of 10m")
	b.narrow()
	b.click(`.danger a[href*="/end-delay?"]`)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
	b.narrow()
	b.until("the focus on what cancels", `document.activeElement.textContent.includes("Cancel: ")`)
	b.fill("billing/invoice", "node-3 is switched off")
	if text := ask[string](b, `document.querySelector(".wrong").textContent`); !strings.Contains(text,
		"Nothing was done") || s.delays(held) != 1 {
		t.Errorf("the wrong name gives %q, and leaves %d delays", text, s.delays(held))
	}
	b.fill(held, "node-3 is switched off")
	b.until("the page of the lock", `location.pathname === "/lock" && !document.querySelector("form.force")`)
	if n := s.delays(held); n != 0 {
		t.Errorf("%d delays are left", n)
	}
	b.open(s.url + "audit")
	b.says("ended the lock delay")
	b.says("ann@example.org")
}
