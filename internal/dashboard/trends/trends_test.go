package trends_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/trends"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestTheSamplerRemembersADay(t *testing.T) {
	var s trends.Sampler
	if !s.Since().IsZero() || !s.Due(noon) || len(s.Lock("a", noon)) != trends.Slots {
		t.Error("it begins with something")
	}
	for i := range 40 { // ten minutes
		at := noon.Add(time.Duration(i) * 15 * time.Second)
		n := 0
		if i >= 10 && i < 30 {
			n = i
		}
		billing := []string{"billing"}
		s.Look(at, []trends.Waiting{{Lock: "a", Owners: billing, N: n}, {Lock: "b", Owners: billing, N: 1},
			{Lock: "c"}})
	}
	if s.Due(noon.Add(10*time.Minute-time.Second)) || !s.Due(noon.Add(10*time.Minute)) {
		t.Error("it does not look every quarter of a minute")
	}
	now := noon.Add(11 * time.Minute)
	a := s.Lock("a", now)
	tail := a[len(a)-3:]
	if tail[0].Most != 19 || tail[0].Waiting != .5 || !tail[0].At.Equal(noon) || tail[1].Most != 29 ||
		tail[1].Waiting != .5 || tail[2].Known || a[0].Known {
		t.Errorf("a: %+v", tail)
	}
	owner := s.Owner("billing", now)
	if tail := owner[len(owner)-3:]; tail[0].Most != 20 || tail[0].Waiting != 1 {
		t.Errorf("its owner: %+v", tail)
	}
	if c := s.Lock("c", now); c[len(c)-3].Most != 0 || !c[len(c)-3].Known {
		t.Errorf("c: %+v", c[len(c)-3])
	}
	tomorrow := noon.Add(24*time.Hour + 10*time.Minute)
	s.Look(tomorrow, []trends.Waiting{{Lock: "a", N: 1}})
	a = s.Lock("a", tomorrow)
	for i, p := range a {
		if last := i == len(a)-1; p.Most > 1 || last != (p.Most == 1) || i == 0 && p.Known {
			t.Fatalf("a day later slot %d is %+v", i, p)
		}
	}
}

func TestTheSamplerHasBounds(t *testing.T) {
	var s trends.Sampler
	many := func(from, n int) (all []trends.Waiting) {
		for i := range n {
			name := fmt.Sprint("lock-", from+i)
			all = append(all, trends.Waiting{Lock: name, Owners: []string{name}, N: 1})
		}
		return all
	}
	s.Look(noon, many(0, 100_000))
	later := noon.Add(time.Hour)
	s.Look(later, many(200_000, 10))
	if p := s.Lock("lock-200007", later); p[len(p)-1].Most != 1 {
		t.Error("what is quiet does not make way")
	}
	kept := 0
	for i := 0; i < 5000; i += 10 { // the first ones were in time
		if p := s.Lock(fmt.Sprint("lock-", i), later); p[len(p)-13].Most == 1 {
			kept++
		}
	}
	if kept < 400 || kept >= 500 {
		t.Errorf("%d of 500 locks are remembered, want nine tenths", kept)
	}
	for i := 5000; i < 100_000; i += 1000 {
		if p := s.Lock(fmt.Sprint("lock-", i), later); p[len(p)-13].Most != 0 {
			t.Errorf("lock %d is remembered, too", i)
		}
	}
}

func TestDay(t *testing.T) {
	now := noon.Add(30 * time.Minute)
	h := func(from, to time.Duration) trends.Hold {
		return trends.Hold{Begin: noon.Add(from), End: noon.Add(to)}
	}
	lasting := trends.Hold{Begin: now.Add(-15 * time.Minute)}
	hours := trends.Day(now, []trends.Hold{h(-30*time.Hour, -22*time.Hour-30*time.Minute),
		h(-2*time.Hour, -90*time.Minute), h(-105*time.Minute, -75*time.Minute), lasting, {}}, []trends.Point{
		{At: noon, Known: true, Waiting: 1}, {At: noon.Add(5 * time.Minute), Known: true},
		{At: noon.Add(10 * time.Minute)}})
	for i, want := range map[int]float64{0: .5, 1: 0, 20: 0, 21: .75, 22: 0, 23: .5} {
		if got := hours[i].Held; math.Abs(got-want) > .01 {
			t.Errorf("hour %d, from %v, was held for %.3f of it, want %.2f", i, hours[i].From, got, want)
		}
	}
	if math.Abs(hours[23].Waiting-1./6) > .01 || hours[22].Waiting != 0 || !hours[23].From.Equal(noon) {
		t.Errorf("%+v", hours[22:])
	}
}
