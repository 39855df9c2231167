package robustness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// never is the time of an answer that did not come.
const never = int64(math.MaxInt64)

// stamp is the monotonic clock of the machine in nanoseconds: the same for all processes of a run.
func stamp() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// What clients ask for.
const (
	opTry    = "try"
	opLock   = "lock"
	opBarge  = "barge"
	opCount  = "count"   // only if a key of the client's is as it was, and writes that key
	opAll    = "all"     // several, one after the other where need be
	opTryAll = "try all" // several at once
	opOnce   = "once"    // a job of a period
	opTask   = "task"    // a task of a set
	opAdopt  = "adopt"   // another handle of a hold
	opAlive  = "alive"
	opUnlock = "unlock"
	opWrite  = "write"   // to the resource behind the fence
	opGuard  = "guarded" // a write in etcd that only the holder may do
)

// What they are told.
const (
	okay    = "ok"
	refused = "refused" // somebody else holds the lock, or queues for it
	lost    = "lost"    // the hold is over, for certain
	maybe   = "maybe"   // anything may have happened
	nothing = "nothing" // nothing was asked of etcd, or it cannot have changed anything
)

// line is one line of a client's notes: what it asks before it asks, what it was told after that. A client that is
// killed leaves questions without answers.
type line struct {
	ID    string   // of the question: the process and a number
	At    int64    // stamp, taken before the question is sent or after the answer came
	Op    string   `json:",omitempty"` // only of a question
	Lock  string   `json:",omitempty"`
	Part  int      `json:",omitempty"` // of the lock that is asked for, where several can hold it; see whole
	Names []string `json:",omitempty"` // of a question for several locks

	Said, Err string `json:",omitempty"` // only of an answer
	Record    string `json:",omitempty"` // of an acquisition: the name under which etcd has it
	Each      []line `json:",omitempty"` // of an acquisition of several locks: what was told of each

	UUID  string `json:",omitempty"` // the hold that it is about; of an acquisition only in the answer
	Token int64  `json:",omitempty"`
	By    string `json:",omitempty"` // who held the lock instead, by what etcd answered
	ByTok int64  `json:",omitempty"`
	Until int64  `json:",omitempty"` // stamp until which the client believes in its hold if nothing comes between

	Wrong      string `json:",omitempty"` // not an answer: something that the client saw by itself
	Ended, Bye bool   `json:",omitempty"` // not an answer: the context of the hold ended; the process ended in order
}

// notes is where a client writes. A line is on its way to the disk before the question is on its way to etcd.
type notes struct {
	mu   sync.Mutex
	file *os.File
}

func (n *notes) write(l line) {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.file.Write(append(b, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

// holdID names a hold. Locks that are taken in one transaction have the same token.
type holdID struct {
	uuid  string
	token int64
}

// of is the hold that a question or an answer is about.
func (l line) of() holdID { return holdID{l.UUID, l.Token} }

type question struct {
	line
	answer line
}

func (q *question) got() bool { return acquires(q.Op) && q.answer.Said == okay }

// belief is the time in which a client believed that it held a lock.
type belief struct {
	lock string
	holdID
	part     int
	from, to int64
	process  string
}

// whole is how much of a lock there is, in parts: one can have all of it, or several a part each.
func whole(lock string) int {
	switch baseOf(lock) {
	case poolLock:
		return poolLimit
	case sharedLock:
		return manyReaders
	}
	return 1
}

func baseOf(lock string) string {
	if base, _, isShare := metadata.ParseShare(lock); isShare {
		return base
	}
	return lock
}

// The locks that several can hold.
const (
	poolLock    = "pool" // a semaphore
	poolLimit   = 4
	sharedLock  = "book" // readers and writers
	manyReaders = 1000
)

type told struct {
	process   string
	questions []*question
	ended     map[holdID]int64 // when its unlock was asked for, or its context ended
	wrong     []string
	bye       *line
	last      int64 // stamp of the last line
}

// readNotes reads what a client wrote. The last line of a client that was killed may be half a line.
func readNotes(process, file string) (*told, error) {
	text, err := os.ReadFile(file)
	t := &told{process: process, ended: map[holdID]int64{}}
	open := map[string][]*question{}
	for one := range bytes.Lines(text) {
		var l line
		if json.Unmarshal(one, &l) != nil {
			continue
		}
		t.last = max(t.last, l.At)
		switch q := open[l.ID]; {
		case l.Bye:
			t.bye = &l
		case l.Ended:
			t.ends(l)
		case l.Wrong != "":
			t.wrong = append(t.wrong, l.Wrong)
		case l.Op != "":
			open[l.ID] = l.each()
			t.questions = append(t.questions, open[l.ID]...)
			if l.Op == opUnlock {
				t.ends(l)
			}
		case q != nil:
			for _, q := range q {
				q.take(l)
			}
			delete(open, l.ID)
		}
	}
	return t, err
}

func (t *told) ends(l line) {
	if was := t.ended[l.of()]; was == 0 || l.At < was {
		t.ended[l.of()] = l.At
	}
}

// each is a question for each lock that is asked for.
func (l line) each() (all []*question) {
	if len(l.Names) == 0 {
		return []*question{{line: l, answer: line{Said: maybe}}}
	}
	for _, name := range l.Names {
		one := l
		one.Lock = name
		one.Names = nil
		all = append(all, one.each()...)
	}
	return all
}

// take takes the answer to a question. One for several locks has what was told of this one.
func (q *question) take(l line) {
	for _, of := range l.Each {
		if of.Record == q.Lock {
			of.ID, of.At = l.ID, l.At
			l = of
		}
	}
	if q.Lock == "" { // it asked for any
		q.Lock = l.Record
	}
	q.answer = l
}

// beliefs are the times in which the process acted as a holder: from the answer to its acquisition until it began to
// unlock or its context ended.
func (t *told) beliefs() (all []belief) {
	until := map[holdID]int64{}
	for _, q := range t.questions {
		until[q.answer.of()] = max(until[q.answer.of()], q.answer.Until)
	}
	for _, q := range t.questions {
		if !q.got() {
			continue
		}
		b := belief{q.Lock, q.answer.of(), max(q.Part, 1), q.answer.At, until[q.answer.of()], t.process}
		if end := t.ended[b.holdID]; end > 0 {
			b.to = min(b.to, end)
		}
		if t.bye == nil {
			b.to = min(b.to, t.last) // killed: it acted on nothing after that
		}
		if b.to > b.from {
			all = append(all, b)
		}
	}
	return all
}

func acquires(op string) bool {
	return slices.Contains([]string{opTry, opLock, opBarge, opCount, opAll, opTryAll, opOnce, opTask}, op)
}

// seconds writes a stamp for people, counted from the beginning of the run.
func seconds(at, began int64) string {
	if at == never || at == 0 {
		return "never"
	}
	return fmt.Sprintf("%.3fs", time.Duration(at-began).Seconds())
}
