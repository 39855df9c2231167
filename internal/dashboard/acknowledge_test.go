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

func TestAnAcknowledgementIsReplacedOrWithdrawn(t *testing.T) {
	s := acknowledged(t)
	var done []protocol.Action
	var fails error
	d := operators(t, s, &done, &fails)
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
	fails = metadata.ErrChanged
	w = post(d, "chief", link, form)
	wantWords(t, w.Body.String(), "Nothing was done: somebody else has acknowledged the lock just now.")
	if w.Code != http.StatusConflict {
		t.Errorf("one that was replaced is withdrawn: %d", w.Code)
	}
	fails = nil
	r := s.documents[stuck]
	w = send(d, "chief", "/api/v1/lock/acknowledge", "application/json",
		fmt.Sprintf(`{"name":%q,"uuid":%q,"token":"%d","withdraw":true}`, stuck, r.UUID, r.Token))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"result":"withdrawn"`) || len(done) != 3 {
		t.Errorf("by the API: %d %s", w.Code, w.Body)
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
