package dashboard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestAnAcknowledgementIsOverAtItsEnd(t *testing.T) {
	s := acknowledged(t)
	d := s.dashboard(t)
	before := get(d, "/")
	s.change(func() {
		s.now = s.now.Add(31 * time.Minute)
		s.fresh.Heard = s.now
	})
	after := get(d, "/", "If-None-Match", before.Header().Get("ETag"))
	if after.Code != http.StatusOK || strings.Contains(words(after.Body.String()), "ann until") {
		t.Errorf("after its end, the list answers %d %s", after.Code, words(after.Body.String()))
	}
	if page := words(ok(t, d, "/lock?name="+stuck)); strings.Contains(page, "looks at it") {
		t.Errorf("after its end, the page says %s", page)
	}
}

func TestAcknowledgedLocksAreFound(t *testing.T) {
	s := acknowledged(t)
	d := s.dashboard(t)
	for query, found := range map[string]bool{
		"acknowledged:yes": true, "acknowledged:no": false, "-acknowledged:no": true, "acknowledged-by:an": true,
		"acknowledged-by:=ann": true, "acknowledged-by:bob": false, "-acknowledged-by:ann": false,
	} {
		page := words(ok(t, d, "/?q="+query))
		if got := strings.Contains(page, "ann until"); got != found {
			t.Errorf("%s: %t, want %t: %s", query, got, found, page)
		}
	}
	wantWords(t, ok(t, d, "/?q=acknowledged:perhaps"), "wants yes or no")
	wantWords(t, ok(t, d, "/?q=acknowledged-by:"), "the key acknowledged-by wants a value")
}

func TestAnAcknowledgementIsReplacedOrWithdrawn(t *testing.T) {
	s := acknowledged(t)
	var done []protocol.Action
	d := s.dashboard(t, marking(t, s, &done))
	link := actionLink(s, "acknowledge", stuck)
	page := get(d, link, "X-Forwarded-User", "chief").Body.String()
	wantWords(t, page, "Yours replaces the acknowledgement by ann.", "Withdraw that by ann",
		`acknowledged by ann 5m ago, for another 30m: "looking at the <disk>"`)
	revision := fmt.Sprint(s.documents[stuck].Acknowledged.Revision)
	if !strings.Contains(page, `name="withdraw" value="`+revision+`"`) {
		t.Errorf("the form does not say which acknowledgement it withdraws: %s", page)
	}
	form := s.form(stuck, "", "30m")
	form.Set("withdraw", "7")
	w := post(d, "chief", link, form)
	if w.Code != http.StatusConflict || len(done) > 0 {
		t.Errorf("another one is withdrawn: %d, %v", w.Code, done)
	}
	wantWords(t, w.Body.String(), "ann has acknowledged the lock since you looked")
	form.Set("withdraw", revision)
	w = post(d, "chief", link, form)
	if w.Code != http.StatusSeeOther || len(done) != 1 || done[0].Action != protocol.ActionWithdraw ||
		done[0].Seconds != 0 || done[0].Reason != "" {
		t.Errorf("the withdrawal: %d, %+v", w.Code, done)
	}
	if !strings.Contains(s.log.String(), `"audit":"withdraw-acknowledgement","result":"success"`) {
		t.Errorf("the log does not show it: %s", &s.log)
	}
	r := s.documents[stuck]
	w = send(d, "chief", "/api/v1/lock/acknowledge", "application/json",
		fmt.Sprintf(`{"name":%q,"uuid":%q,"token":"%d","withdraw":true}`, stuck, r.UUID, r.Token))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"result":"withdrawn"`) || len(done) != 2 {
		t.Errorf("by the API: %d %s", w.Code, w.Body)
	}
}

func TestAReplacedAcknowledgementIsNotWithdrawn(t *testing.T) {
	s := acknowledged(t)
	var done []protocol.Action
	d := s.dashboard(t, marking(t, s, &done, metadata.ErrChanged))
	form := s.form(stuck, "", "")
	form.Set("withdraw", fmt.Sprint(s.documents[stuck].Acknowledged.Revision))
	w := post(d, "chief", actionLink(s, "acknowledge", stuck), form)
	if w.Code != http.StatusConflict {
		t.Errorf("the answer is %d", w.Code)
	}
	wantWords(t, w.Body.String(), "Nothing was done: somebody else has acknowledged the lock just now.")
}

func TestTheHistoryTellsWhoLookedAtAHold(t *testing.T) {
	s := acknowledged(t)
	d := s.dashboard(t)
	record := s.documents[stuck].Record
	delete(s.documents, stuck)
	d.Ended(&record, nil)
	wantWords(t, ok(t, d, "/history?q=acknowledged-by:ann"), `acknowledged by ann 5m ago: "looking at the <disk>"`)
	if page := words(ok(t, d, "/history?q=acknowledged-by:bob")); strings.Contains(page, "acknowledged by ann") {
		t.Errorf("bob's are %s", page)
	}
}

func TestTheSilenceOfAlertmanagerIsLinked(t *testing.T) {
	s := acknowledged(t)
	s.add(hold{name: `odd "\ + & name`, owner: "billing", held: time.Hour, alert: -time.Minute, unlock: time.Hour})
	d := s.dashboard(t, func(c *setup.Config) { c.Alertmanager = "https://alerts.example/am/" })
	for name, want := range map[string]string{
		stuck: `href="https://alerts.example/am/#/silences/new?filter=%7Block%3D%22` +
			strings.ReplaceAll(stuck, "/", "%2F") + `%22%7D&amp;comment=looking%20at%20the%20%3Cdisk%3E"`,
		"odd+%22%5C+%2B+%26+name": `filter=%7Block%3D%22odd%20%5C%22%5C%5C%20%2B%20%26%20name%22%7D"`,
	} {
		if page := ok(t, d, "/lock?name="+name); !strings.Contains(page, want) {
			t.Errorf("the page has no %s: %s", want, page[strings.Index(page, "alerts.example"):][:200])
		}
	}
	if page := ok(t, d, "/lock?name=drm/rotate-keys"); strings.Contains(page, "alerts.example") {
		t.Error("a lock without alerts leads to a silence")
	}
	for _, bad := range []string{"alerts.example", "ftp://alerts.example", "https://u:p@alerts.example",
		"https://alerts.example/#/x", "javascript:alert(1)", "https://alerts.example/?x=1"} {
		c := s.config()
		if c.Alertmanager = bad; c.Check() == nil {
			t.Errorf("%s is taken for Alertmanager's address", bad)
		}
	}
}
