package deadlock_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var night = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// world is who holds and waits. A process is called by the name of its owner.
type world struct {
	locks  []*metadata.Record
	queues map[string][]metadata.Waiter
}

func newWorld() *world { return &world{queues: map[string][]metadata.Waiter{}} }

// parse reads a world: "x=a@1" is that a holds x since minute 1, "pool%a@1" that it has a permit, "book&a@1" that it
// reads, "a>x@2" that it waits, and "a>x<y,z@2" that it does so under the holds of y and z.
func parse(t *testing.T, text string) *world {
	t.Helper()
	w := newWorld()
	for _, m := range regexp.MustCompile(`([^ @]+)([=%&>])([^ @]+)@(\d+)`).FindAllStringSubmatch(text, -1) {
		minute, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		switch m[2] {
		case "=":
			w.holds(m[1], m[3], minute)
		case "%":
			w.share(m[1], m[3], metadata.KindSemaphore, minute)
		case "&":
			w.share(m[1], m[3], metadata.KindShared, minute)
		default:
			w.waits(m[1], m[3], minute)
		}
	}
	return w
}

func at(minute int) time.Time { return night.Add(time.Duration(minute) * time.Minute) }

// holds makes a process hold a lock since a minute of the night.
func (w *world) holds(lock, owner string, minute int) *metadata.Record {
	r := &metadata.Record{Name: lock, UUID: lock, Token: 1,
		Identity: metadata.Identity{Owner: owner, Hostname: owner + "-0", PID: 7}, LockedAt: at(minute)}
	i, _ := slices.BinarySearchFunc(w.locks, lock,
		func(r *metadata.Record, lock string) int { return strings.Compare(r.Name, lock) })
	w.locks = slices.Insert(w.locks, i, r)
	return r
}

// share is a permit or a reader, by its kind.
func (w *world) share(lock, owner, kind string, minute int) *metadata.Record {
	number := 1
	for slices.ContainsFunc(w.locks,
		func(r *metadata.Record) bool { return r.Name == metadata.ShareName(lock, number) }) {
		number++
	}
	r := w.holds(metadata.ShareName(lock, number), owner, minute)
	r.Attributes = map[string]any{metadata.AttributeKind: kind, metadata.AttributeLimit: json.Number("9")}
	return r
}

func (w *world) waits(owner, lock string, minute int) {
	lock, under, _ := strings.Cut(lock, "<")
	ahead := len(w.queues[lock])
	t := metadata.Waiter{Name: lock, ID: fmt.Sprint(owner, ahead), Revision: int64(ahead + 1)}
	t.Owner = owner
	t.Hostname = owner + "-0"
	t.PID = 7
	t.Since = metadata.Time{Time: at(minute)}
	t.Under = strings.ReplaceAll(under, ",", " ")
	w.queues[lock] = append(w.queues[lock], t)
}

// forget takes away since when these locks are held and waited for.
func (w *world) forget(locks ...string) {
	for _, r := range w.locks {
		if slices.Contains(locks, r.Name) {
			r.LockedAt = time.Time{}
			w.queues[r.Name][0].Since = metadata.Time{}
		}
	}
}

func (w *world) find() []deadlock.Cycle { return deadlock.Find(w.locks, w.queues) }

// told is a cycle in short: "a>y:b b>x:a @5", that a waits for y, held by b, and so on, since minute 5.
func told(c deadlock.Cycle) string {
	var steps []string
	for _, w := range c.Waits {
		var held []string
		for _, p := range w.Held {
			held = append(held, p.Owner)
		}
		steps = append(steps, w.Who.Owner+">"+w.Lock+":"+strings.Join(held, "+"))
	}
	if c.Since.IsZero() {
		return strings.Join(steps, " ") + " @?"
	}
	return fmt.Sprint(strings.Join(steps, " "), " @", int(c.Since.Sub(night)/time.Minute))
}

// TestCycles has worlds, and the cycles in them, the oldest first.
func TestCycles(t *testing.T) {
	const pair = "x=a@1 y=b@1 a>y@2 b>x@2" // who wait for each other
	for name, c := range map[string]struct {
		world  string
		want   string // cycles, after semicolons
		change func(*world)
	}{
		"nothing":                        {"", "", nil},
		"nobody waits":                   {"x=a@1", "", nil},
		"one waits for what is free":     {"x=a@1 b>free@1 b>zero@1", "", nil},
		"one waits":                      {"x=a@1 y=b@2 a>y@3", "", nil},
		"two, since the last one waits":  {"x=a@1 y=b@2 a>y@3 b>x@5", "a>y:b b>x:a @5", nil},
		"one took it past the queue":     {"x=a@1 a>y@3 b>x@5 y=b@8", "a>y:b b>x:a @8", nil},
		"two cycles":                     {pair + " u=c@1 v=d@1 c>v@0 d>u@1", "c>v:d d>u:c @1; a>y:b b>x:a @2", nil},
		"two tickets, since the first":   {"x=a@1 y=b@1 a>y@9 a>y@4 b>x@2", "a>y:b b>x:a @4", nil},
		"one that waits for itself":      {"x=a@1 a>x@2 b>x@2", "", nil},
		"jobs that want more permits":    {"pool%a@1 pool%b@1 a>pool@2 b>pool@2", "", nil},
		"jobs that want to write":        {"pool&a@1 pool&b@1 a>pool@2 b>pool@2", "", nil},
		"one reader is enough":           {"book&busy@1 book&a@4 x=b@1 a>x@2 b>book@3", "a>x:b b>book:a @4", nil},
		"somebody can give a permit":     {"pool%a@1 pool%b@2 x=c@1 a>x@3 c>pool@4", "", nil},
		"a lock that looks like a share": {"pool#1=a@1 pool#3rd=a@1 x=b@1 a>x@2 b>pool@2", "", nil},
		"which somebody waits for":       {"pool#1=a@1 x=b@1 a>x@2 b>pool#1@3", "a>x:b b>pool#1:a @3", nil},
		"four, along the way": {"la=a@0 lb=b@1 lc=c@2 ld=d@3 a>lc@10 c>lb@10 b>ld@10 d>la@10",
			"a>lc:c c>lb:b b>ld:d d>la:a @10", nil},
		"nobody can give a permit": {"pool%a@1 pool%b@2 x=c@1 a>x@3 c>pool@4 b>x@6", "a>x:c c>pool:a+b b>x:c @6", nil},
		"neighbours in the order of names": {"pool=a@1 pool!=b@1 pool&c@1 pool#=b@1 pool#:=b@1 poor=b@1 b>pool@2 " +
			"x=b@1 c>x@3", "b>pool:c c>x:b @3", nil},
		"somebody unknown can give a permit": {"pool%a@1 pool%?@1 x=b@1 a>x@2 b>pool@2", "",
			func(w *world) { w.locks[1].Hostname = "" }},
		"commands under each other's locks":     {"x=a@1 y=b@1 c>y<x@2 d>x<y@3", "a>y:b b>x:a @3", nil},
		"one of them three deep":                {"x=a@1 y=b@1 z=e@1 c>z<x,y@2 d>x<z@3", "a>z:e e>x:a @3", nil},
		"a command that waits for its own lock": {"x=a@1 c>x<x@2", "a>x:a @2", nil},
		"a command under a hold that is over":   {"x=a@1 y=b@1 c>y<u@2 d>x<y@3", "", nil},
		"they do not say their process":         {pair, "", func(w *world) { w.locks[0].PID, w.locks[1].PID = 0, 0 }},
		"one does not say its host":             {pair, "", func(w *world) { w.queues["x"][0].Hostname = "" }},
		"another process of the host":           {pair, "", func(w *world) { w.locks[0].PID = 8 }},
		"a record without a uuid":               {pair, "", func(w *world) { w.locks[1].Token = 0 }},
		"nobody says a time":                    {pair, "a>y:b b>x:a @?", func(w *world) { w.forget("x", "y") }},
		"a cycle without a time is the last": {pair + " u=c@1 v=d@1 c>v@2 d>u@3", "c>v:d d>u:c @3; a>y:b b>x:a @?",
			func(w *world) { w.forget("x", "y") }},
	} {
		w := parse(t, c.world)
		if c.change != nil {
			c.change(w)
		}
		var got []string
		for _, cycle := range w.find() {
			got = append(got, told(cycle))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

func TestNamesAreSortedAndUnique(t *testing.T) {
	w := parse(t, "y=a@1 x=b@1 a>x@2 b>y@2 b>w@2")
	w.holds("w", "", 1).Hostname = "c-0"
	w.queues["y"] = append(w.queues["y"],
		metadata.Waiter{Ticket: metadata.Ticket{Identity: metadata.Identity{Hostname: "c-0", PID: 7}}})
	c := w.find()[0]
	if got := fmt.Sprint(c.Locks(), c.Processes()); got != "[w x y] [c-0:7 a on a-0:7 b on b-0:7]" {
		t.Error(got)
	}
}

func TestLabelsAreShortAndDistinct(t *testing.T) {
	labels := func(last string) [2]string {
		w := newWorld()
		long := strings.Repeat("x", 200) + last
		w.holds(long, "a\x1b", 1)
		w.holds("y", "b", 1)
		w.waits("b", long, 2)
		w.waits("a\x1b", "y", 2)
		return w.find()[0].Labels()
	}
	one, other := labels("1"), labels("2")
	if one[0] == other[0] || len(one[0]) > 128 || !strings.HasPrefix(one[0], "xxx") ||
		!strings.HasPrefix(one[1], "a\ufffd on a\ufffd-0:7, b on b-0:7~") {
		t.Errorf("%q and %q", one, other)
	}
}
