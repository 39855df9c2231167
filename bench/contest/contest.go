// Package contest lets contestants do the same work in turns and compares them. Noise on the machine affects all of
// them alike, so the ratios of one run count, not the absolute figures.
package contest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Contestant is one kind of lock.
type Contestant struct {
	Name string

	// Connect opens a connection, which several clients share. Closing it cleans up after them.
	Connect func(ctx context.Context) (Connection, error)

	// Counters reads how much the server has done so far; nil if it does not report that.
	Counters func(ctx context.Context) (Counters, error)

	// Exclusive is false for contestants that lock nothing and only show the limit of the server.
	Exclusive bool
}

// Connection is a process's connection to the server.
type Connection interface {
	// Client returns a new client: no two clients hold the same lock.
	Client(ctx context.Context) (Client, error)
	Close() error
}

// Client takes one lock after the other.
type Client interface {
	// Lock waits for the lock until ctx ends, and returns a function that releases it.
	Lock(ctx context.Context, name string) (unlock func() error, err error)
}

// Counters are counts of a server; NaN for what it does not count.
type Counters struct {
	Requests float64 // of clients, without watches
	Watches  float64 // messages on watch streams: opening, cancelling
	Told     float64 // messages to clients on watch streams: events, and answers to the former
	Commits  float64 // entries of the replicated log
	CPU      float64 // seconds
}

func (c Counters) minus(d Counters) Counters {
	return Counters{c.Requests - d.Requests, c.Watches - d.Watches, c.Told - d.Told, c.Commits - d.Commits,
		c.CPU - d.CPU}
}

// perConnection is how many clients share a connection.
const perConnection = 16

// Turn is what one contestant did in one round.
type Turn struct {
	Contestant string
	Round      int
	Seconds    float64
	Load       float64 // the machine's load average when it began

	Done       int     // pairs of lock and unlock
	Passed     int     // of these, from another client
	Violations int     // how often two clients held the lock at once
	Served     int     // clients that got the lock at least once
	Jain       float64 // fairness
	// in milliseconds: of a lock and unlock or, under contention, of the wait alone. The least disturbed ones
	P10       float64
	P50, P99  float64
	ClientCPU float64   // seconds of processor time of this program, for all clients
	Allocs    float64   // objects that this program allocated, for all clients
	Server    *Counters // of the whole turn; nil if the server does not report it
}

// Rate is the work done per second; under contention, hand-overs from one client to another.
func (t Turn) Rate(handOvers bool) float64 {
	if handOvers {
		return float64(t.Passed) / t.Seconds
	}
	return float64(t.Done) / t.Seconds
}

// Idle returns how long the lock was held by nobody between two holders, in milliseconds.
func (t Turn) Idle(hold time.Duration) float64 {
	return (t.Seconds/float64(t.Done) - hold.Seconds()) * 1000
}

// Work is one workload.
type Work struct {
	Name    string
	Clients int
	Contend bool          // for one lock; otherwise each client has its own
	Hold    time.Duration // how long a client keeps the lock
	Apart   bool          // each client has a connection of its own, as if it were a process
	Length  time.Duration // of the measured part of a turn
	// before that, how long to wait until every client has had the lock once
	MaxStart time.Duration
}

// Run lets all contestants do the work in every round, each round starting with another one, and returns the turns.
func Run(ctx context.Context, w Work, contestants []Contestant, rounds int, told func(Turn)) ([]Turn, error) {
	var turns []Turn
	for round := range rounds {
		for i := range contestants {
			c := contestants[(i+round)%len(contestants)]
			if w.Contend && !c.Exclusive {
				continue
			}
			t, err := turn(ctx, w, c, fmt.Sprintf("%s-%d-%d", w.Name, round, time.Now().UnixNano()))
			if err != nil {
				return turns, fmt.Errorf("%s, %s: %w", w.Name, c.Name, err)
			}
			t.Round = round
			turns = append(turns, t)
			told(t)
		}
	}
	return turns, nil
}

func turn(ctx context.Context, w Work, c Contestant, name string) (Turn, error) {
	clients, end, err := clients(ctx, c, w)
	defer end()
	if err != nil {
		return Turn{}, err
	}
	runtime.GC() // so that no contestant pays for the garbage of the one before
	b := &bout{work: w, contestant: c, name: name, clients: clients, seats: make([]seat, len(clients))}
	return b.run(ctx)
}

// clients returns the clients of a workload on new connections, and a function that closes them.
func clients(ctx context.Context, c Contestant, w Work) (all []Client, end func(), err error) {
	var connections []Connection
	end = func() {
		var closing sync.WaitGroup
		for _, connection := range connections {
			closing.Go(func() { connection.Close() })
		}
		closing.Wait()
	}
	for i := range w.Clients {
		if w.Apart || i%perConnection == 0 {
			connection, err := c.Connect(ctx)
			if err != nil {
				return nil, end, err
			}
			connections = append(connections, connection)
		}
		client, err := connections[len(connections)-1].Client(ctx)
		if err != nil {
			return nil, end, err
		}
		all = append(all, client)
	}
	return all, end, nil
}

// Of returns the turns of a contestant, in the order of the rounds.
func Of(turns []Turn, contestant string) []Turn {
	return slices.DeleteFunc(slices.Clone(turns), func(t Turn) bool { return t.Contestant != contestant })
}

// Printable returns t with -1 instead of NaN, which JSON does not have.
func (t Turn) Printable() Turn {
	if math.IsNaN(t.Jain) {
		t.Jain = -1
	}
	if t.Server != nil {
		c := *t.Server
		for _, x := range []*float64{&c.Requests, &c.Watches, &c.Told, &c.Commits, &c.CPU} {
			if math.IsNaN(*x) {
				*x = -1
			}
		}
		t.Server = &c
	}
	return t
}

// Each runs f n times concurrently, with the numbers from 0, and returns the first error.
func Each(n int, f func(worker int) error) error {
	errs := make(chan error, n)
	var all sync.WaitGroup
	for worker := range n {
		all.Go(func() { errs <- f(worker) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for d, and returns an error if ctx ends before.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Keep adds figures to a file, as a line of JSON; it does nothing without a file.
func Keep(file string, figures any) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
