package dashboard_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestTheTimelineIsInOrderAndHasGapsAndHolds(t *testing.T) {
	s := busy()
	for i := range 60 {
		s.over(stuck, metadata.EndedForced, "bob", "it hung", time.Duration(i+2)*time.Hour,
			time.Duration(i+1)*time.Hour)
	}
	d := s.dashboard(t)
	ok(t, d, "/history")
	s.tick(4 * time.Minute)
	s.relists++
	s.fresh.Heard = s.now
	page := ok(t, d, "/lock?name="+stuck)
	wantWords(t, page, "Not watching from 2026-11-21 03:12:39 UTC to 03:16:41", "There are more in the history.",
		"This dashboard began to watch: releases before are not known")
	_, list, _ := strings.Cut(page, `<ol class="life">`)
	list, _, _ = strings.Cut(list, "</ol>")
	var times []string
	for _, m := range regexp.MustCompile(`<li class="(?:held|ended|waits|alert)"><time datetime="([^"]*)"`).
		FindAllStringSubmatch(list, -1) {
		times = append(times, m[1])
	}
	if len(times) != 55 || !slices.IsSortedFunc(times, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("%d times: %q", len(times), times)
	}
}

func TestTheTimelineOfALockAsksForWhatNobodyWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busy()
		var err error
		var takes time.Duration
		var samples []trends.Sample
		d := s.dashboard(t, func(c *setup.Config) {
			c.Waited = func(_ context.Context, lock string, _, to time.Time) ([]trends.Sample, error) {
				if lock != stuck {
					t.Errorf("asked about %s", lock)
				}
				time.Sleep(takes)
				return samples, err
			}
		})
		page := func(says string) {
			t.Helper()
			wantWords(t, ok(t, d, "/lock?name="+stuck+"&window=24h"), says)
			s.change(func() { s.tick(time.Minute) })
		}
		page("Prometheus has no samples of this lock.")
		samples = []trends.Sample{{At: s.now, N: 7}, {At: s.now.Add(-5 * time.Hour), N: 95}}
		page("Waited at most 95 waited at a time, says Prometheus")
		err = errors.New("timeout")
		page("Prometheus could not be asked (timeout).")
		err = nil
		takes = time.Second
		began := time.Now()
		page("Prometheus could not be asked (no answer within 300ms).")
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("the page waited for %v", took)
		}
		time.Sleep(time.Second)
		s.change(func() { s.tick(25 * time.Hour) })
		if page := ok(t, d, "/lock?name="+stuck+"&window=15m"); strings.Contains(page, "Prometheus") {
			t.Error("it is asked for what the dashboard saw itself")
		}
	})
}
