package contest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
)

// memory is a lock in this process.
type memory struct {
	mu    sync.Mutex
	locks map[string]chan struct{}
	open  bool // it lets everybody in
}

func (m *memory) Client(context.Context) (contest.Client, error) { return m, nil }
func (m *memory) Close() error                                   { return nil }

func (m *memory) Lock(ctx context.Context, name string) (func() error, error) {
	if m.open {
		return func() error { return nil }, nil
	}
	m.mu.Lock()
	if m.locks[name] == nil {
		m.locks[name] = make(chan struct{}, 1)
	}
	c := m.locks[name]
	m.mu.Unlock()
	select {
	case c <- struct{}{}:
		return func() error { <-c; return nil }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func contestant(name string, m *memory) contest.Contestant {
	return contest.Contestant{Name: name, Exclusive: true,
		Connect: func(context.Context) (contest.Connection, error) { return m, nil }}
}

func good() *memory { return &memory{locks: map[string]chan struct{}{}} }

var short = contest.Work{Name: "handover", Clients: 20, Contend: true, Length: 50 * time.Millisecond,
	MaxStart: 10 * time.Second}

// run lets contestants do work that has to succeed.
func run(t *testing.T, work contest.Work, rounds int, cs ...contest.Contestant) []contest.Turn {
	t.Helper()
	turns, err := contest.Run(t.Context(), work, cs, rounds, func(contest.Turn) {})
	if err != nil {
		t.Fatal(err)
	}
	return turns
}

func TestContestantsRotate(t *testing.T) {
	turns := run(t, short, 3, contestant("a", good()), contestant("b", good()), contestant("c", good()))
	order := ""
	for _, turn := range turns {
		order += turn.Contestant
	}
	if order != "abcbcacab" {
		t.Errorf("order %s", order)
	}
	for _, turn := range turns {
		if turn.Violations != 0 || turn.Done == 0 || turn.Served == 0 || turn.Passed > turn.Done ||
			turn.Seconds < 0.05 {
			t.Errorf("%+v", turn)
		}
	}
	rounds := contest.Of(turns, "b")
	if len(rounds) != 3 || rounds[0].Round != 0 || rounds[2].Round != 2 {
		t.Errorf("turns of b: %+v", rounds)
	}
}

func TestBrokenLockIsDetected(t *testing.T) {
	turns := run(t, short, 1, contestant("open", &memory{open: true}))
	if turns[0].Violations == 0 {
		t.Error("the broken lock was not detected")
	}
}

func TestCountersCoverOnlyTheTurn(t *testing.T) {
	c := contestant("a", good())
	n := 0.0
	c.Counters = func(context.Context) (contest.Counters, error) { n += 10; return contest.Counters{Requests: n}, nil }
	for _, turn := range run(t, short, 2, c) {
		if turn.Server.Requests != 10 {
			t.Errorf("%v requests in a turn, want 10", turn.Server.Requests)
		}
	}
}
