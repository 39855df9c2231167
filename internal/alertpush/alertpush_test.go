package alertpush_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestAlertIsSentWhenDueRepeatedAndResolved(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.lock("billing/run #1")
		w.holds(r)
		defer w.start(w.config())()
		w.wants(w.after(time.Minute - time.Millisecond))
		first := w.after(time.Millisecond)
		w.wants(first, "warning UnlockerLockAlerting billing/run #1 +4m0s")
		checkFirst(w.T, first[0], r)
		w.wants(w.after(2*time.Minute+30*time.Second), "warning UnlockerLockAlerting billing/run #1 +4m0s",
			"warning UnlockerLockAlerting billing/run #1 +4m0s")

		extended := *r
		extended.AlertAt = time.Now().Add(time.Hour)
		extended.AutoUnlockAt = time.Now().Add(2 * time.Hour)
		w.holds(&extended)
		over := w.take()
		w.wants(over, "warning UnlockerLockAlerting billing/run #1 +0s")
		if !over[0].StartsAt.Equal(r.AlertAt) || over[0].Annotations["lapses"] != "" {
			w.Errorf("it began at %v, and says %q", over[0].StartsAt, over[0].Annotations["lapses"])
		}
		if told := w.after(14*time.Minute + 50*time.Second); len(told) != 15 || !told[14].EndsAt.Equal(over[0].EndsAt) {
			w.Errorf("its end is sent %d more times, last with %v", len(told), told[len(told)-1].EndsAt)
		}
		w.wants(w.after(30 * time.Minute))
	})
}

// Who looks at a lock stands in its alert as long as it is so, and silences nothing.
func TestAlertHasRequestExtensionAndAcknowledgement(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.lock("nightly")
		at := metadata.Time{Time: time.Unix(1_553_682_600, 0)}
		r.Asked = &metadata.Request{By: "ann", At: at, Reason: "the deploy waits\x1b"}
		r.Extended = &metadata.Extension{At: at, Reason: "slow disk"}
		until := time.Now().Add(90 * time.Second).Truncate(time.Second)
		r.Acknowledged = &metadata.Acknowledgement{By: "ann", Until: metadata.Time{Time: until}, Note: "disk\u202e"}
		w.holds(r)
		defer w.start(w.config())()
		told := w.after(time.Minute)
		w.wants(told, "warning UnlockerLockAlerting nightly +4m0s")
		for note, want := range map[string]string{
			"asked":        `by ann at 2019-03-27 10:30:00Z: the deploy waits\x1b`,
			"extended":     "by somebody at 2019-03-27 10:30:00Z: slow disk",
			"acknowledged": "by ann until " + until.UTC().Format("2006-01-02 15:04:05Z") + `: disk\u202e`,
		} {
			if got := told[0].Annotations[note]; got != want {
				w.Errorf("%s %s, want %s", note, got, want)
			}
		}
		told = w.after(time.Until(until)) // its key may outlive it
		if last := told[len(told)-1]; last.Annotations["acknowledged"] != "" || last.EndsAt.Before(time.Now()) {
			w.Errorf("after its end, the alert is %+v", last)
		}
	})
}

func TestAlertsBeforeALocksAlertTime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*metadata.Record)
		quiet  time.Duration // before it is told
		alert  string
		says   map[string]string // parts of its annotations
		later  []string          // told within the minute after
	}{
		"its holder's clock is off": {func(r *metadata.Record) {
			r.LockedAt = r.LockedAt.Add(24 * time.Hour)
			r.AlertAt = r.LockedAt.Add(time.Hour)
			r.AutoUnlockAt = r.LockedAt.Add(2 * time.Hour)
		}, 0, "UnlockerHolderClockOff", map[string]string{"description": " ahead of the unlocker's."},
			[]string{"UnlockerHolderClockOff"}},
		"it has no readable deadlines": {func(r *metadata.Record) {
			r.AlertAt, r.AutoUnlockAt = time.Time{}, time.Time{}
		}, 15 * time.Minute, "UnlockerLockMalformed", nil, []string{"UnlockerLockMalformed"}},
		"its holder is dead": {func(r *metadata.Record) {
			code := 137
			r.Heed(&metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseContainerEnded,
				ExitCode: &code, Detail: "OOMKilled", How: "the kubelet says so", By: "eu-1",
				EndedAt: metadata.Time{Time: time.Now()}}, nil)
		}, 0, "UnlockerLockAbandoned", map[string]string{
			"description": "did not release it: its container ended at 2000-01-01 00:00:00Z. Everything",
			"ended":       "with exit code 137 (OOMKilled)", "witness": "eu-1", "why": "the kubelet says so",
		}, []string{"UnlockerLockAbandoned", "UnlockerLockAlerting"}},
	} {
		t.Run(name, inside(func(w *world) {
			config := w.config()
			config.Policy.DefaultAlertAfter = 0
			w.holds(w.lock("a", c.change))
			defer w.start(config)()
			if c.quiet > 0 {
				w.wants(w.after(c.quiet - time.Millisecond))
			}
			told := w.after(time.Millisecond)
			w.wants(told, "warning "+c.alert+" a +4m0s")
			for note, part := range c.says {
				if !strings.Contains(told[0].Annotations[note], part) {
					w.Errorf("%s: %q, want %q", note, told[0].Annotations[note], part)
				}
			}
			later := map[string]bool{}
			for _, p := range w.after(time.Minute) {
				later[p.Labels["alertname"]] = true
			}
			if names := slices.Sorted(maps.Keys(later)); !slices.Equal(names, c.later) ||
				!told[0].StartsAt.Equal(w.began) {
				w.Errorf("told since %v, and then %v", told[0].StartsAt, names)
			}
			w.holds()
			if over := w.after(time.Second); len(over) != len(c.later) || over[0].EndsAt.After(over[0].at) {
				w.Errorf("its end is pushed as %v", over)
			}
		}))
	}
}

func checkFirst(t *testing.T, got posted, r *metadata.Record) {
	t.Helper()
	if len(got.Labels) != 4 || got.Labels["owner"] != "billing" || !got.StartsAt.Equal(r.AlertAt) {
		t.Errorf("labels %q since %v", got.Labels, got.StartsAt)
	}
	want := map[string]string{
		"summary": "Lock billing/run #1 is held longer than its holder expected.",
		"description": "billing on host-1 took the lock billing/run #1 and expected to be done by " +
			r.AlertAt.UTC().Format("2006-01-02 15:04:05Z") + ".",
		"owner": "billing", "host": "host-1", "purpose": "nightly invoices", "frame": "main.go:12 in main.run",
		"next": "Auto-unlock at " + r.AutoUnlockAt.UTC().Format("2006-01-02 15:04:05Z") +
			", 9m 0s after this alert began, unless the holder extends it.",
		"dashboard":   "https://locks.example.org/lock?name=billing%2Frun+%231",
		"runbook_url": "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#unlockerlockalerting",
		"lapses":      "No unlocker reports this now, so it may not be over.",
	}
	for name, value := range want {
		if got.Annotations[name] != value {
			t.Errorf("%s is %q, want %q", name, got.Annotations[name], value)
		}
	}
	if len(got.Annotations) != len(want) || got.GeneratorURL != want["dashboard"] {
		t.Errorf("annotations %q, source %q", got.Annotations, got.GeneratorURL)
	}
}

func TestAlertIdentityIsStableAcrossUnlockers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.holds(w.lock("a"))
		stop := w.start(w.config())
		defer w.start(w.config())()
		time.Sleep(90 * time.Second)
		stop()
		before := w.take()
		time.Sleep(10*time.Second + time.Millisecond)
		defer w.start(w.config())()
		all := append(before, w.take()...)
		if len(before) != 2 || len(all) != 3 {
			w.Fatalf("%d alerts, then %d", len(before), len(all))
		}
		for _, p := range all {
			if fmt.Sprint(p.Labels) != fmt.Sprint(all[0].Labels) || !p.StartsAt.Equal(all[0].StartsAt) {
				w.Errorf("%v since %v, and %v since %v", p.Labels, p.StartsAt, all[0].Labels, all[0].StartsAt)
			}
		}
	})
}

func TestOverdueLockIsCriticalIfLocksAreRemoved(t *testing.T) {
	for _, that := range []struct {
		removes, excluded bool
		want              []string
	}{
		{true, false, []string{"critical UnlockerLockExpired a +4m0s", "warning UnlockerLockAlerting a +4m0s"}},
		{true, true, []string{"warning UnlockerLockAlerting a +4m0s"}}, // somebody wants it to stay
		{false, false, []string{"warning UnlockerLockAlerting a +4m0s"}},
	} {
		inWorld(t, func(w *world) {
			w.holds(w.lock("a"))
			c := w.config()
			c.Removes = that.removes
			c.Excluded = func(string) bool { return that.excluded }
			defer w.start(c)()
			if told := w.after(15*time.Minute - time.Second); slices.ContainsFunc(told,
				func(p posted) bool { return p.Labels["severity"] == "critical" }) {
				w.Error("critical too early")
			}
			got := w.after(3 * time.Second)
			slices.SortFunc(got, func(a, b posted) int { return strings.Compare(a.is(), b.is()) })
			w.wants(slices.CompactFunc(got, func(a, b posted) bool { return a.is() == b.is() }), that.want...)
		})
	}
}

func TestRemovalAlertLastsAQuarterOfAnHour(t *testing.T) {
	for _, how := range []string{metadata.EndedAutoUnlocked, metadata.EndedAbandoned} {
		inWorld(t, func(w *world) {
			defer w.start(w.config())()
			time.Sleep(30 * time.Second)
			r := w.lock("a")
			ending := metadata.NewEnding(r, how, "eu-1", "its deadline passed", time.Now())
			forced := ending
			old := ending
			forced.Ended = metadata.EndedForced
			forced.Lock = "b"
			old.EndedAt.Time = time.Now().Add(-time.Hour)
			old.Lock = "c"
			w.pusher.Ended(r, nil)
			w.pusher.Ended(r, &forced)
			w.pusher.Ended(r, &old)
			w.wants(w.take())
			w.pusher.Ended(r, &ending)
			got := w.take()
			w.wants(got, "warning UnlockerLockAutoUnlocked a +15m0s")
			if n := got[0].Annotations; n["by"] != "eu-1" || n["why"] != "its deadline passed" ||
				n["owner"] != "billing" || n["purpose"] != "nightly invoices" {
				w.Errorf("annotations %q", n)
			}
			if told := w.after(time.Hour); len(told) != 15 || !told[14].EndsAt.Equal(got[0].EndsAt) {
				w.Errorf("told %d times more", len(told))
			}
		})
	}
}

func TestLatestAlertsAreKeptDuringAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.is(func() (int, error) { return 0, errDown })
		w.holds(w.lock("a"), w.lock("b"))
		defer w.start(w.config())()
		time.Sleep(5 * time.Minute)
		w.holds(w.lock("b", func(r *metadata.Record) { r.AlertAt = r.AlertAt.Add(-5 * time.Minute) }))
		time.Sleep(time.Minute)
		if n := w.asked(); n < 10 || n > 25 {
			w.Errorf("%d requests in five minutes: it does not back off, or does not try", n)
		}
		w.is(nil)
		got := w.after(30 * time.Second)
		slices.SortFunc(got, func(a, b posted) int { return strings.Compare(a.Labels["lock"], b.Labels["lock"]) })
		if len(got) < 2 || got[0].Labels["lock"] != "a" || got[0].EndsAt.After(got[0].at) ||
			!got[len(got)-1].EndsAt.After(got[len(got)-1].at) {
			w.Errorf("a has to be over and b not: %+v", got)
		}
		if n := strings.Count(w.log.String(), "does not take alerts"); n != 1 || !strings.Contains(w.log.String(),
			"takes alerts again") {
			w.Errorf("the trouble is logged %d times:\n%s", n, w.log.String())
		}
	})
}

func TestRefusedRequestIsNotResentUnchanged(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge} {
		inWorld(t, func(w *world) {
			w.is(func() (int, error) { return status, nil })
			w.holds(w.lock("a"))
			defer w.start(w.config())()
			time.Sleep(2*time.Minute + 30*time.Second)
			if n := w.asked(); n != 2 { // when it came, and at the resend since
				w.Errorf("%d requests", n)
			}
			says := fmt.Sprintf(`%d: no\\x00pe`, status)
			if told := w.log.String(); !strings.Contains(told, says) || strings.Contains(told, "again") {
				w.Errorf("the log does not show the answer, or the recovery:\n%s", told)
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

func TestHangingAlertmanagerDoesNotDelayOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.transport = transport(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "hangs:9093" {
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			return w.alertmanager.RoundTrip(req)
		})
		c := w.config()
		c.URLs = []string{"http://hangs:9093", "http://alertmanager:9093/prefix/"}
		w.holds(w.lock("a"))
		defer w.start(c)()
		w.wants(w.after(time.Minute), "warning UnlockerLockAlerting a +4m0s")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		got := map[string]float64{}
		for _, m := range w.gather()["unlocker_alert_pushes_total"].GetMetric() {
			got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
		}
		want := map[string]float64{"http://hangs:9093 success": 0, "http://hangs:9093 error": 1,
			"http://alertmanager:9093/prefix/ success": 1, "http://alertmanager:9093/prefix/ error": 0}
		if !maps.Equal(got, want) {
			w.Errorf("counted are %v, want %v", got, want)
		}
	})
}

func TestTooManyAlertsAreCutWithoutResolvingAny(t *testing.T) {
	inWorld(t, func(w *world) {
		var locks []*metadata.Record
		for i := range 1500 {
			locks = append(locks, w.lock(fmt.Sprintf("%04d", i),
				func(r *metadata.Record) { r.AlertAt = r.AlertAt.Add(-time.Duration(i) * time.Millisecond) }))
		}
		w.holds(locks[:1000]...)
		defer w.start(w.config())()
		w.after(61 * time.Second)
		w.holds(locks...) // the new ones are overdue for longer, and push others out
		got := w.after(62 * time.Second)
		told := map[string]bool{}
		for _, p := range got {
			told[p.Labels["lock"]] = true
			if !p.EndsAt.After(p.at) {
				w.Fatalf("%s is over", p.is())
			}
		}
		if !told["1499"] || !told["0500"] {
			w.Error("the most overdue ones are not told")
		}
		if n := w.gather()["unlocker_alert_push_left_out"].GetMetric()[0].GetGauge().GetValue(); n != 500 {
			w.Errorf("%v left out", n)
		}
	})
}

func TestUntrustedTextIsShortAndPrintable(t *testing.T) {
	inWorld(t, func(w *world) {
		evil := strings.Repeat("\u202e\x1b[31m\n<b>\xff", 200)
		w.traces = func(string, string) (string, error) { return "\n" + evil, nil }
		w.holds(w.lock(evil[:200], func(r *metadata.Record) {
			r.Owner = evil
			r.Hostname = evil
			r.Purpose = evil
		}))
		defer w.start(w.config())()
		got := w.after(time.Minute)
		if len(got) != 1 {
			w.Fatalf("%d alerts", len(got))
		}
		if n := len(got[0].Labels["lock"]); n > 128 {
			w.Errorf("the label has %d bytes", n)
		}
		for name, value := range got[0].Annotations {
			if len(value) > 2200 || !utf8.ValidString(value) ||
				strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				w.Errorf("%s: %d bytes, %q", name, len(value), value)
			}
		}
		if link := got[0].Annotations["dashboard"]; !strings.HasPrefix(link,
			"https://locks.example.org/lock?name_b64=") {
			w.Errorf("the link is %q", link)
		}
	})
}

func TestBacktraceIsReadOnceAndRetriedAfterAFailure(t *testing.T) {
	inWorld(t, func(w *world) {
		read := w.traces
		w.readsTraces(func(string, string) (string, error) { return "", errDown })
		w.holds(w.lock("a"))
		defer w.start(w.config())()
		if got := w.after(61 * time.Second); len(got) == 0 || got[0].Annotations["frame"] != "" {
			w.Errorf("%+v", got)
		}
		w.readsTraces(read)
		if got := w.after(10 * time.Minute); got[len(got)-1].Annotations["frame"] != "main.go:12 in main.run" {
			w.Errorf("%+v", got[len(got)-1])
		}
		if w.lookups != 1 {
			w.Errorf("looked up %d times", w.lookups)
		}
	})
}

func TestUnrelatedChangesAreNotPushed(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.lock("a")
		same := []*metadata.Record{r}
		w.holds(same...)
		defer w.start(w.config())()
		w.after(2 * time.Minute)
		for range 50 {
			w.holds(same...) // as when an unlocker writes its presence
			time.Sleep(time.Second)
		}
		if got := w.take(); len(got) > 1 {
			w.Errorf("told %d times within a minute", len(got))
		}
	})
}

// Times in statements and records come from the clocks of others. Alertmanager refuses an alert that begins after its
// end.
func TestAlertStartIsNotInTheFuture(t *testing.T) {
	ahead := func() metadata.Time { return metadata.Time{Time: time.Now().Add(24 * time.Hour)} }
	for name, c := range map[string]struct {
		change func(*metadata.Record)
		want   string
	}{
		"the node of a dead holder is a day ahead": {func(r *metadata.Record) {
			r.Heed(&metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token,
				Cause: metadata.CauseContainerEnded, EndedAt: ahead()}, nil)
		}, "UnlockerLockAbandoned"},
		"its witness is": {func(r *metadata.Record) {
			r.Heed(&metadata.Statement{Lock: r.Name, UUID: r.UUID, Token: r.Token,
				Cause: metadata.CauseProcessEnded, At: ahead()}, nil)
		}, "UnlockerLockAbandoned"},
		"the holder of a malformed record is": {func(r *metadata.Record) {
			r.LockedAt = ahead().Time
			r.AlertAt = time.Time{}
			r.AutoUnlockAt = time.Time{}
		}, "UnlockerLockMalformed"},
	} {
		t.Run(name, inside(func(w *world) {
			config := w.config()
			config.Policy.DefaultAlertAfter = 0
			w.holds(w.lock("a", c.change))
			defer w.start(config)()
			told := w.after(16 * time.Minute)
			i := slices.IndexFunc(told, func(p posted) bool { return p.Labels["alertname"] == c.want })
			if i < 0 {
				w.Fatalf("%s is not told, only %d others", c.want, len(told))
			}
			if told[i].StartsAt.After(told[i].at) {
				w.Errorf("%s begins %v after it was sent", c.want, told[i].StartsAt.Sub(told[i].at))
			}
			w.holds()
			if over := w.after(time.Minute); len(over) == 0 || over[0].EndsAt.After(over[0].at) {
				w.Errorf("its end is not told: %v", over)
			}
		}))
	}
}
