//go:build browser

package browser

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// permit takes permits of a semaphore of three by the library, until the test ends or the returned function is called.
func (s *stage) permit(name, host string, weight int) (unlock func()) {
	s.t.Helper()
	locks, err := mutex.New(s.client, mutex.Options{Prefix: s.layout.Prefix(), Owner: "media", Hostname: host})
	if err != nil {
		s.t.Fatal(err)
	}
	held, err := locks.TryLock(s.t.Context(), name, mutex.Semaphore(3), mutex.Weight(weight), mutex.Purpose("a film"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { locks.Close() })
	return func() {
		if err := held.Unlock(); err != nil {
			s.t.Error(err)
		}
	}
}

func TestSemaphoreIsSeenWithItsHoldersAndItsLine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	defer s.permit("films", "transcoder-1", 1)()
	free := s.permit("films", "transcoder-2", 2)
	s.wait("films", "media", "transcoder-3", "another film", time.Minute)
	b.open(s.url)
	b.until("both holders", `[...document.querySelectorAll(".locks .chip")].map((e) => e.textContent)
		.sort().join() === "1 of 3 permits,2 of 3 permits"`)
	b.open(s.url + "lock?name=films")
	b.until("the whole lock", `document.querySelector(".say:not(.blocked)").textContent
		.includes("3 of 3 permits taken by 2 holders, none free")`)
	b.until("the waiter", `document.getElementById("main").innerText.includes("transcoder-3")`)
	free()
	b.until("the permits that are free",
		`document.querySelector(".say:not(.blocked)").textContent.includes("1 of 3 permits taken by 1 holder, 2 free")`)
	b.open(s.url + "waiting")
	b.until("the holder in the overview",
		`document.querySelector("table.queues").textContent.includes("1 of 3 permits taken by 1 holder, 2 free")`)
}

func TestSectionsFollowAndStayAsTheyWereOpened(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
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
	s.put("calm/lock", metadata.FieldAlertAt, metadata.FormatTime(time.Now().Add(-time.Minute)))
	b.until("a section says that a lock in it alerts",
		`document.querySelector("details:not([open])[data-key=calm] summary").textContent
			.includes("1 lock, 1 alerting")`)
	s.put("quiet/lock", metadata.FieldAlertAt, metadata.FormatTime(time.Now().Add(-time.Minute)))
	b.until("an open section stays open", `document.querySelector("details[open][data-key=quiet] tbody.alerting")`)
}

func TestHistoryAndAuditFollow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.hold(lock{name: "a/lock", owner: "o", host: "h", held: time.Minute, alert: time.Hour, unlock: 9 * time.Hour})
	b.open(s.url + "history")
	b.until("nothing yet", `document.querySelector(".empty") && document.readyState === "complete"`)
	s.shown() // a hold that nobody saw is no history
	s.release("a/lock")
	b.until("the ended hold", `document.querySelector("table.past")?.textContent.includes("a/lock")`)
}

func TestPageThatAsksBeginsAtItsBeginningWithoutScripts(t *testing.T) {
	t.Parallel()
	s := unlockStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.size(360, 740)
	b.scripts(false)
	b.open(s.url + "unlock?name=" + held)
	b.until("the form", `document.readyState === "complete" && document.querySelector("form.force")`)
	b.until("the focus on what cancels", `document.activeElement.textContent.includes("Cancel")`)
	if at := ask[float64](b, `scrollY`); at != 0 {
		t.Errorf("the page is %v px down", at)
	}
}
