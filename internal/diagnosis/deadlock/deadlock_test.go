package deadlock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

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
		"nobody can give a permit": {"pool%a@1 pool%b@2 x=c@1 a>x@3 c>pool@4 b>x@6", "a>x:c c>pool:a+b b>x:c @6",
			nil},
		"neighbours in the order of names": {"pool=a@1 pool!=b@1 pool&c@1 pool#=b@1 pool#:=b@1 poor=b@1 b>pool@2 " +
			"x=b@1 c>x@3", "b>pool:c c>x:b @3", nil},
		"somebody unknown can give a permit": {"pool%a@1 pool%?@1 x=b@1 a>x@2 b>pool@2", "",
			func(w *world) { w.locks[1].Hostname = "" }},
		"they do not say their process": {pair, "", func(w *world) { w.locks[0].PID, w.locks[1].PID = 0, 0 }},
		"one does not say its host":     {pair, "", func(w *world) { w.queues["x"][0].Hostname = "" }},
		"another process of the host":   {pair, "", func(w *world) { w.locks[0].PID = 8 }},
		"a record without a uuid":       {pair, "", func(w *world) { w.locks[1].Token = 0 }},
		"nobody says a time":            {pair, "a>y:b b>x:a @?", func(w *world) { w.forget("x", "y") }},
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

func TestNamesAreToldInOrderAndOnce(t *testing.T) {
	w := parse(t, "y=a@1 x=b@1 a>x@2 b>y@2 b>w@2")
	w.holds("w", "", 1).Hostname = "c-0"
	w.queues["y"] = append(w.queues["y"],
		metadata.Waiter{Ticket: metadata.Ticket{Holder: metadata.Holder{Hostname: "c-0", PID: 7}}})
	c := w.find()[0]
	if got := fmt.Sprint(c.Locks(), c.Processes()); got != "[w x y] [c-0:7 a on a-0:7 b on b-0:7]" {
		t.Error(got)
	}
}

func TestLabelsAreShortAndOtherOnesForOtherCycles(t *testing.T) {
	labels := func(last string) (locks, holders string) {
		w := newWorld()
		long := strings.Repeat("x", 200) + last
		w.holds(long, "a\x1b", 1)
		w.holds("y", "b", 1)
		w.waits("b", long, 2)
		w.waits("a\x1b", "y", 2)
		return w.find()[0].Labels()
	}
	one, who := labels("1")
	other, _ := labels("2")
	if one == other || len(one) > 128 || !strings.HasPrefix(one, "xxx") ||
		!strings.HasPrefix(who, "a\ufffd on a\ufffd-0:7, b on b-0:7~") {
		t.Errorf("%q, %q and %q", one, other, who)
	}
}
