package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time {
	return noon.Add(time.Duration(minutes * float64(time.Minute)))
}

func hold(token int64, begin, end float64) timeline.Interval {
	i := timeline.Interval{Lock: "a", Name: "a", ID: fmt.Sprint("u", token), Token: token, Begin: at(begin)}
	if end != 0 {
		i.End = at(end)
	}
	return i
}

func wait(ticket string, begin, end float64) timeline.Interval {
	i := hold(0, begin, end)
	i.Wait = true
	i.ID = ticket
	return i
}

func TestMerge(t *testing.T) {
	for name, test := range map[string]struct{ sources, want []timeline.Interval }{
		"one after the other": {[]timeline.Interval{hold(2, 5, 0), hold(1, 1, 4)},
			[]timeline.Interval{hold(1, 1, 4), hold(2, 5, 0)}},
		"the first source counts": {[]timeline.Interval{hold(1, 1, 4), hold(1, 1, 5), hold(1, 1, 0)},
			[]timeline.Interval{hold(1, 1, 4)}},
		"seen to end late": {[]timeline.Interval{hold(1, 1, 4.5), hold(2, 4, 6)},
			[]timeline.Interval{hold(1, 1, 4), hold(2, 4, 6)}},
		"a clock that is behind": {[]timeline.Interval{hold(1, 3, 4), hold(2, 2, 6)},
			[]timeline.Interval{hold(1, 3, 4), hold(2, 4, 6)}},
		"a clock of an unlocker that is ahead": {[]timeline.Interval{hold(1, 3, 7), hold(2, 2, 6)},
			[]timeline.Interval{hold(2, 2, 3), hold(1, 3, 7)}},
		"tokens that went back with etcd": {[]timeline.Interval{hold(9, 1, 4), hold(2, 5, 0)},
			[]timeline.Interval{hold(9, 1, 4), hold(2, 5, 0)}},
		"an end that nobody saw": {[]timeline.Interval{hold(1, 1, 0), hold(2, 4, 0)},
			[]timeline.Interval{hold(1, 1, 4), hold(2, 4, 0)}},
		"a wait with three tickets": {[]timeline.Interval{wait("x", 1, 3), wait("y", 1, 4), wait("z", 1, 0)},
			[]timeline.Interval{wait("z", 1, 0)}},
		"a wait given up beside another": {[]timeline.Interval{wait("x", 1, 3), wait("y", 2, 0)},
			[]timeline.Interval{wait("x", 1, 3), wait("y", 2, 0)}},
		"nobody holds it": {[]timeline.Interval{hold(0, 1, 0)}, nil},
		"a clock ahead":   {[]timeline.Interval{hold(1, 20, 0)}, []timeline.Interval{hold(1, 10, 0)}},
	} {
		var sources [][]timeline.Interval
		for _, i := range test.sources {
			sources = append(sources, []timeline.Interval{i})
		}
		if got := timeline.Merge(at(10), sources...); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, test.want)
		}
	}
}

// Whatever the clocks and the order of arrival, the holds of one record do not overlap and end after they begin.
func TestHoldsOfOneRecordNeverOverlap(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		var sources [2][]timeline.Interval
		for token := range int64(1 + random.IntN(12)) {
			begin := 20 * random.Float64()
			end := begin + 4*random.Float64() - .5
			if random.IntN(4) == 0 {
				end = 0
			}
			i := hold(token+1, begin, end)
			i.Name = fmt.Sprint("pool#", random.IntN(2))
			n := random.IntN(2)
			sources[n] = append(sources[n], i)
		}
		now := at(15)
		all := timeline.Merge(now, sources[0], sources[1])
		for n, i := range all {
			end := i.End
			if end.IsZero() {
				end = now
			}
			if end.Before(i.Begin) && i.Begin.Before(now) {
				t.Errorf("seed %d: token %d ends before it begins: %+v", seed, i.Token, all)
			}
			if n == 0 || all[n-1].Name != i.Name {
				continue
			}
			before := all[n-1]
			if before.End.IsZero() || i.Begin.Before(before.End) {
				t.Fatalf("seed %d: tokens %d and %d overlap: %+v", seed, before.Token, i.Token, all)
			}
		}
	}
}

func TestStoreSeesWaitsEnd(t *testing.T) {
	var s timeline.Store
	wait := func(id string) metadata.Waiter {
		return metadata.Waiter{Name: "a", ID: id, Ticket: metadata.Ticket{Since: metadata.Time{Time: noon},
			Identity: metadata.Identity{Owner: "billing-" + id}}}
	}
	queue := []metadata.Waiter{wait("1"), wait("2"), wait("3")}
	s.UpdateQueues(map[string][]metadata.Waiter{"a": queue}, at(1))
	first := wait("1")
	s.AddAcquired(&first, at(2))
	unseen := wait("4") // between two looks
	s.AddAcquired(&unseen, at(2.5))
	s.UpdateQueues(map[string][]metadata.Waiter{"a": queue[2:]}, at(3))
	s.UpdateQueues(nil, at(4))
	all := s.Since(noon, nil)
	if forgot := s.IncompleteBefore(); !forgot.IsZero() {
		t.Errorf("it forgot something at %v", forgot)
	}
	var said []string
	for _, i := range all {
		said = append(said, fmt.Sprintf("%s %s %v %v", i.Owner, i.End.Sub(i.Begin), i.Acquired, i.Wait))
	}
	want := []string{"billing-1 2m0s true true", "billing-4 2m30s true true", "billing-2 3m0s false true",
		"billing-3 4m0s false true"}
	if !slices.Equal(said, want) {
		t.Errorf("\n got %q\nwant %q", said, want)
	}
}

func TestStoreForgetsTheOldestAndShortest(t *testing.T) {
	var s timeline.Store
	now := noon
	saw := func(name string, length time.Duration) {
		s.AddHold(&metadata.Ending{Name: name, Token: 1, LockedAt: metadata.Time{Time: now.Add(-length)},
			EndedAt: metadata.Time{Time: now}})
	}
	saw("old", time.Hour)
	now = noon.Add(25 * time.Hour)
	saw("long", time.Hour)
	for n := range 3 * timeline.MaxIntervals {
		now = now.Add(10 * time.Millisecond)
		saw(fmt.Sprint("short-", n), time.Duration(1+n%7)*time.Millisecond)
	}
	all := s.Since(time.Time{}, nil)
	if n := len(all); n < timeline.MaxIntervals || n > timeline.MaxIntervals+timeline.MaxIntervals/10 {
		t.Errorf("%d are remembered", n)
	}
	if all[0].Name != "long" {
		t.Errorf("the first one is %q", all[0].Name)
	}
	if forgot := s.IncompleteBefore(); forgot.Before(noon) || forgot.After(now) {
		t.Errorf("it says that it forgot until %v", forgot)
	}
	if last := all[len(all)-1].Name; last != fmt.Sprint("short-", 3*timeline.MaxIntervals-1) {
		t.Errorf("the last one is %q", last)
	}
}
