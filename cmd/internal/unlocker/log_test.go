package unlocker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func cycleOf(owners ...string) deadlock.Cycle {
	var c deadlock.Cycle
	process := func(i int) deadlock.Process {
		return deadlock.Process{Owner: owners[i%len(owners)], Host: "host", PID: 7}
	}
	for i := range owners {
		c.Waits = append(c.Waits, deadlock.Wait{Who: process(i), Lock: "of-" + process(i+1).Owner,
			Held: []deadlock.Process{process(i + 1)}})
	}
	c.Since = time.Unix(1_700_000_000, 0)
	return c
}

// lines are what was logged, in short.
func lines(t *testing.T, log *bytes.Buffer) (all []string) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var o struct{ Level, Message, Locks string }
		proctest.Must(t, json.Unmarshal([]byte(line), &o))
		all = append(all, o.Level+" "+o.Locks)
	}
	log.Reset()
	return all
}

func TestCycleIsLoggedOnceAndItsEndOnce(t *testing.T) {
	var log bytes.Buffer
	var cycles []deadlock.Cycle
	w := newDeadlockLogger(func() []deadlock.Cycle { return cycles }, zerolog.New(&log))
	looks := func(n int, want ...string) {
		t.Helper()
		for range n {
			w.search()
		}
		if got := lines(t, &log); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	looks(1)
	cycles = []deadlock.Cycle{cycleOf("a", "b")}
	looks(1)
	cycles = []deadlock.Cycle{cycleOf("c", "d")} // another one: the first was there for a moment
	looks(1)
	looks(1, "warn of-c, of-d")
	looks(100)
	cycles = append(cycles, cycleOf("e", "f", "g"))
	looks(2, "warn of-e, of-f, of-g")
	cycles = cycles[1:]
	looks(1, "info of-c, of-d")
	cycles = nil
	looks(1, "info of-e, of-f, of-g")
	looks(100)
}

func TestCyclesAreCheckedEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		w := newDeadlockLogger(func() []deadlock.Cycle { looks.Add(1); return nil }, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		cancel()
		if err := <-ended; err != nil || looks.Load() != 12 {
			t.Errorf("%d looks in a minute, %v", looks.Load(), err)
		}
	})
}

func TestDeadlockLogLineHasWaitersLocksAndTimes(t *testing.T) {
	var log bytes.Buffer
	c := cycleOf("a", "b\n")
	c.Waits[0].Held = append(c.Waits[0].Held, deadlock.Process{Owner: "c"})
	logger := zerolog.New(&log)
	describe(logger.Warn(), c).Str("waits", describeWaits(c)).Send()
	for _, want := range []string{`"since":"2023-11-14T22:13:20Z"`, `"holders":"a on host:7, b� on host:7~`,
		`a on host:7 waits for of-b�, held by b� on host:7 and 1 more; ` +
			`b� on host:7 waits for of-a, held by a on host:7`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
}

// A client that writes a thousand cycles must not fill the log.
func TestLoggedCyclesAreLimited(t *testing.T) {
	var log bytes.Buffer
	var cycles []deadlock.Cycle
	for i := range 1000 {
		cycles = append(cycles, cycleOf(fmt.Sprint("a", i), fmt.Sprint("b", i)))
	}
	w := newDeadlockLogger(func() []deadlock.Cycle { return cycles }, zerolog.New(&log))
	for range 3 {
		w.search()
	}
	if n := len(lines(t, &log)); n != maxLogged {
		t.Errorf("%d lines", n)
	}
	owners := make([]string, 1000)
	for i := range owners {
		owners[i] = strings.Repeat(fmt.Sprint(i), 500)
	}
	if n := len(describeWaits(cycleOf(owners...))); n > 5000 {
		t.Errorf("a line of %d bytes", n)
	}
}

func TestHistoryIsTrimmedEveryMinuteDespiteErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		trims := 0
		h := historyTrimmer{log: zerolog.New(&out), trim: func(context.Context) (int, error) {
			trims++
			if trims == 2 {
				return 0, errors.New("etcd is away")
			}
			return 7, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(10*time.Minute + time.Second)
		cancel()
		proctest.Must(t, <-ended)
		if trims < 10 || trims > 11 {
			t.Errorf("%d times in ten minutes", trims)
		}
		if n := strings.Count(out.String(), "etcd is away"); n != 1 {
			t.Errorf("the problem is logged %d times:\n%s", n, out.String())
		}
	})
}
