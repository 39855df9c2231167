package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// apart are requests that come by chance, on average at a distance.
func apart(distance, within time.Duration) (rs []request) {
	random := rand.New(rand.NewPCG(7, 7))
	for at := time.Duration(0); at < within; at += time.Duration(random.ExpFloat64() * float64(distance)) {
		rs = append(rs, newRequest(at, false))
	}
	return rs
}

func TestAQueueWaitsAsTheoryHasIt(t *testing.T) {
	const service = time.Millisecond
	within := 200 * time.Second
	for _, use := range []float64{0.3, 0.6, 0.9} {
		rs := apart(time.Duration(float64(service)/use), within)
		var total time.Duration
		free := time.Duration(0)
		for _, r := range rs {
			free = max(free, r.at()) + service
			total += free - r.at()
		}
		want := 1 + use/(2*(1-use)) // Pollaczek and Khinchine, with a constant service time; in milliseconds
		if got := total.Seconds() * 1000 / float64(len(rs)); got < want*0.9 || got > want*1.1 {
			t.Errorf("at %.1f of the throughput the mean answer takes %.2f ms, want %.2f", use, got, want)
		}
		a := serviceOf(service).serve(rs, 0, within)
		if a.use < use-0.02 || a.use > use+0.02 {
			t.Errorf("%.1f of the throughput is said to be %.2f", use, a.use)
		}
		if a.p50 < service || a.p99 < a.p50 || a.worst < a.p99 {
			t.Errorf("answers take %v, %v and %v", a.p50, a.p99, a.worst)
		}
	}
}

func serviceOf(d time.Duration) service { return service{extend: d, hold: d} }

func TestWhatWaitedForAClusterIsAnsweredAfterItsReturn(t *testing.T) {
	within := 100 * time.Second
	rs := apart(2*time.Millisecond, within) // half of what it can
	a := serviceOf(time.Millisecond).serve(rs, 20*time.Second, within)
	// The requests of 20 s take 10 s, meanwhile 5 s of work come, and so on.
	if a.drained < 38*time.Second || a.drained > 42*time.Second {
		t.Errorf("caught up after %v, want about 40 s", a.drained)
	}
	if a := serviceOf(3*time.Millisecond).serve(rs, 20*time.Second, within); a.drained != 0 {
		t.Errorf("a cluster that cannot keep up has caught up after %v", a.drained)
	}
}

func TestAllLocksAreHeldByOneClusterEach(t *testing.T) {
	w := newWorld(load{locks: 100_000, clients: 1000, segments: 300, hold: time.Minute, extend: time.Minute, seed: 1})
	if total := sum(w.locksOf, numbersTo(300)); total < 99_000 || total > 101_000 {
		t.Errorf("the segments have %d locks", total)
	}
	for what, placed := range map[string][][]int{"table": w.byTable(8), "hash": w.byHash(8)} {
		if got := slices.Sorted(slices.Values(slices.Concat(placed...))); !slices.Equal(got, numbersTo(300)) {
			t.Errorf("%s: the segments placed are %v", what, got)
		}
	}
	_, table := w.fullest(w.byTable(8))
	_, hash := w.fullest(w.byHash(8))
	if table < 12_000 || table > 13_000 || hash < table {
		t.Errorf("the fullest of 8 has %d by table and %d by hash", table, hash)
	}
}

func numbersTo(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i
	}
	return ns
}

func TestHoldersExtendAndChange(t *testing.T) {
	w := newWorld(load{segments: 1, locks: 1, clients: 1, hold: 10 * time.Minute, extend: time.Minute, seed: 1})
	const locks = 50_000
	var extensions, holds float64
	for _, r := range w.requests(locks, time.Minute) {
		if r.isHold() {
			holds++
		} else {
			extensions++
		}
	}
	if want := locks / w.meanHold().Minutes(); holds < want*0.95 || holds > want*1.05 {
		t.Errorf("%v of %d locks changed hands in a minute, want about %.0f", holds, locks, want)
	}
	if extensions < 0.9*locks || extensions > locks {
		t.Errorf("%v of %d holds were extended in a minute", extensions, locks)
	}
}

func TestJobsOfCronBeginWithTheMinute(t *testing.T) {
	l := load{segments: 1, locks: 1, clients: 1, hold: time.Minute, extend: time.Minute, seed: 1, aligned: 0.5}
	inFirst := 0
	all := 0
	for _, r := range newWorld(l).requests(10_000, 5*time.Minute) {
		if !r.isHold() || r.at() < time.Minute || r.at() > 4*time.Minute {
			continue
		}
		all++
		if r.at()%time.Minute < time.Second {
			inFirst++
		}
	}
	if share := float64(inFirst) / float64(all); share < 0.48 || share > 0.55 {
		t.Errorf("%.2f of the holds begin in the first second of a minute, want half", share)
	}
}

func TestWhatExceedsTheLimitsIsNamed(t *testing.T) {
	w := newWorld(load{locks: 20_000, clients: 100, segments: 100, hold: time.Minute, extend: time.Minute, seed: 1})
	c := costs{extend: time.Millisecond, hold: 2 * time.Millisecond, store: 2000, memory: 3000, connection: 1 << 20,
		unlocker: 900, read: 1000}
	l := limits{use: 0.5, store: 20 << 20, memory: 100 << 20}
	one := w.simulate(1, c, l)
	if got := strings.Join(one.over, " "); got != "throughput store memory" {
		t.Errorf("one cluster exceeds %q", got)
	}
	if four := w.simulate(4, c, l); len(four.over) != 0 || four.locks < 5000 || four.locks > 5300 ||
		four.connections < 20 ||
		four.start != time.Duration(four.locks)*time.Millisecond {
		t.Errorf("the fullest of four is %+v", four)
	}
	text := table([]int{1}, []outcome{one})
	if !strings.Contains(text, "| over the limit | throughput, store, memory |") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for _, list := range []string{"", "0", "1,x", "1,-4"} {
		if _, err := numbers(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
	good := load{locks: 1, clients: 1, segments: 1, hold: 1, extend: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	bad := []load{good, good, good, good}
	bad[0].locks = 0
	bad[1].hold = 0
	bad[2].aligned = 1.1
	bad[3].away = -1
	for _, l := range bad {
		if l.check() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}
