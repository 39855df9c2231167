package deadlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestTwoWhoWaitForEachOtherAreACycleSinceTheLastOfThemWaits(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.holds("y", "b", 2)
	w.waits("a", "y", 3)
	w.wants(t)
	w.waits("b", "x", 5)
	w.wants(t, "a>y:b b>x:a @5")
}

func TestWhoTakesALockPastTheQueueClosesTheCycleThen(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.waits("a", "y", 3)
	w.waits("b", "x", 5)
	w.wants(t)
	w.holds("y", "b", 8)
	w.wants(t, "a>y:b b>x:a @8")
}

func TestALongCycleIsToldAlongTheWay(t *testing.T) {
	w := newWorld()
	for i, owner := range []string{"a", "b", "c", "d"} {
		w.holds("lock-"+owner, owner, i)
	}
	for owner, lock := range map[string]string{"a": "lock-c", "c": "lock-b", "b": "lock-d", "d": "lock-a"} {
		w.waits(owner, lock, 10)
	}
	w.wants(t, "a>lock-c:c c>lock-b:b b>lock-d:d d>lock-a:a @10")
}

func TestTwoCyclesAreTwoAndTheOlderOneComesFirst(t *testing.T) {
	w := newWorld()
	for _, pair := range []struct {
		one, other string
		since      int
	}{{"a", "b", 9}, {"c", "d", 4}} {
		w.holds("of-"+pair.one, pair.one, 1)
		w.holds("of-"+pair.other, pair.other, 1)
		w.waits(pair.one, "of-"+pair.other, 2)
		w.waits(pair.other, "of-"+pair.one, pair.since)
	}
	w.wants(t, "c>of-d:d d>of-c:c @4", "a>of-b:b b>of-a:a @9")
}

func TestAProcessThatWaitsForItselfIsNoCycle(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.waits("a", "x", 2)
	w.waits("b", "x", 2)
	w.wants(t)
}

// Two workers that run several jobs at once hold permits and wait for more of them all day: no deadlock.
func TestWhoHasAPartOfALockAndWaitsForMoreOfItIsAnotherJob(t *testing.T) {
	for _, kind := range []string{metadata.HoldsPermits, metadata.HoldsShared} {
		w := newWorld()
		w.share("pool", "a", kind, 1)
		w.share("pool", "b", kind, 1)
		w.waits("a", "pool", 2)
		w.waits("b", "pool", 2)
		w.wants(t)
	}
}

func TestProcessesThatDoNotSayWhoTheyAreAreNotTakenForEachOther(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.holds("y", "b", 1)
	w.waits("a", "y", 2)
	w.waits("b", "x", 2)
	for _, r := range w.locks {
		r.PID = 0
	}
	w.wants(t)
	for _, r := range w.locks {
		r.PID = 7
	}
	w.queues["x"][0].Hostname = ""
	w.wants(t)
}

func TestHostAndProcessIdTellProcessesApart(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1).PID = 8 // another one than the one that waits for y
	w.holds("y", "b", 1)
	w.waits("a", "y", 2)
	w.waits("b", "x", 2)
	w.wants(t)
}

// A writer waits for every reader, so one that is stuck is enough.
func TestOneReaderIsEnoughForACycle(t *testing.T) {
	w := newWorld()
	w.share("catalogue", "busy", metadata.HoldsShared, 1)
	w.share("catalogue", "a", metadata.HoldsShared, 4)
	w.holds("x", "b", 1)
	w.waits("a", "x", 2)
	w.waits("b", "catalogue", 3)
	w.wants(t, "a>x:b b>catalogue:a @4")
}

func TestPermitsAreKeptForEverOnlyWhenAllWhoHaveThemAreStuck(t *testing.T) {
	w := newWorld()
	w.share("pool", "a", metadata.HoldsPermits, 1)
	w.share("pool", "b", metadata.HoldsPermits, 2)
	w.holds("x", "c", 1)
	w.waits("a", "x", 3)
	w.waits("c", "pool", 4)
	w.wants(t) // b can give one back
	w.waits("b", "x", 6)
	w.wants(t, "a>x:c c>pool:a+b b>x:c @6")
}

func TestAPermitOfSomebodyUnknownMayBeGivenBackAtAnyTime(t *testing.T) {
	w := newWorld()
	w.share("pool", "a", metadata.HoldsPermits, 1)
	w.share("pool", "?", metadata.HoldsPermits, 1).Hostname = ""
	w.holds("x", "b", 1)
	w.waits("a", "x", 2)
	w.waits("b", "pool", 2)
	w.wants(t)
}

func TestALockWhoseNameLooksLikeAShareIsNone(t *testing.T) {
	w := newWorld()
	w.holds("pool#1", "a", 1)
	w.holds("pool#3rd floor", "a", 1)
	w.holds("x", "b", 1)
	w.waits("a", "x", 2)
	w.waits("b", "pool", 2)
	w.wants(t)
	w.waits("b", "pool#1", 3)
	w.wants(t, "a>x:b b>pool#1:a @3")
}

func TestSeveralTicketsOfOneProcessAreOneWaitSinceTheFirst(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.holds("y", "b", 1)
	w.waits("a", "y", 9)
	w.waits("a", "y", 4)
	w.waits("b", "x", 2)
	w.wants(t, "a>y:b b>x:a @4")
}

func TestTimesThatNobodySaysAreNotMadeUp(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1).LockedAt = time.Time{}
	w.holds("y", "b", 1).LockedAt = time.Time{}
	w.waits("a", "y", 2)
	w.waits("b", "x", 2)
	w.queues["x"][0].Since, w.queues["y"][0].Since = metadata.Time{}, metadata.Time{}
	w.wants(t, "a>y:b b>x:a @?")
}

func TestNamesAreToldInOrderAndOnce(t *testing.T) {
	w := newWorld()
	w.holds("y", "a", 1)
	w.holds("x", "b", 1)
	w.holds("w", "", 1).Hostname = "c-0"
	w.waits("a", "x", 2)
	w.waits("b", "y", 2)
	w.waits("b", "w", 2)
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

func TestARecordWithoutUuidIsHeldByNobody(t *testing.T) {
	w := newWorld()
	w.holds("x", "a", 1)
	w.holds("y", "b", 1).Token = 0
	w.waits("a", "y", 2)
	w.waits("b", "x", 2)
	w.wants(t)
}

func TestWhereNobodyWaitsNobodyIsStuck(t *testing.T) {
	w := newWorld()
	w.wants(t)
	w.holds("x", "a", 1)
	w.wants(t)
	w.waits("b", "free", 1)
	w.wants(t)
}

func TestNeighboursInTheOrderOfNamesAreNoShares(t *testing.T) {
	w := newWorld()
	w.holds("pool", "a", 1)
	w.holds("pool !", "b", 1) // sorts between pool and its shares
	w.share("pool", "c", metadata.HoldsShared, 1)
	w.holds("pool#", "b", 1)
	w.holds("pool#:", "b", 1)
	w.holds("poor", "b", 1)
	w.waits("b", "pool", 2)
	w.holds("x", "b", 1)
	w.waits("c", "x", 3)
	w.wants(t, "b>pool:c c>x:b @3")
}
