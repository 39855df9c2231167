package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// What is run and done under locks of its own.
const (
	jobLock   = "job"
	jobPeriod = 2 * time.Second
	taskSet   = "chores"
)

// errBack is that of a job that wants its period back.
var errBack = errors.New("once more")

func (w *worker) several(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.between(300*time.Millisecond, 4*time.Second))
	defer cancel()
	names := slices.Clone(w.Locks)
	w.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:2+w.rand.IntN(2)]
	op := opAll
	take := w.locks.LockAll
	if w.chance(50) {
		op = opTryAll
		take = w.locks.TryLockAll
	}
	id, answer := w.ask(line{Op: op, Names: names})
	all, err := take(ctx, names, append(w.options(id, op, longLife), mutex.Attribute("names", len(names)))...)
	answer(allAcquired(all, err))
	if err != nil {
		return
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	for _, l := range all.All() {
		w.follow(&ended, l)
		w.act(l)
	}
	w.unlockAll(all)
}

// unlockAll gives all locks back. Each of them says once more what became of it.
func (w *worker) unlockAll(all *mutex.Locks) {
	var answers []func(line)
	for _, l := range all.All() {
		_, answer := w.askOf(opUnlock, l)
		answers = append(answers, answer)
	}
	all.Unlock()
	for i, l := range all.All() {
		answers[i](over(l.Unlock()))
	}
}

// allAcquired says what an acquisition of several locks was told of each.
func allAcquired(all *mutex.Locks, err error) line {
	a := line{Said: nothing}
	if err != nil {
		one := acquired(nil, err)
		if held, isHeld := errors.AsType[*mutex.HeldError](err); isHeld && one.Said == refused {
			one.Record = held.Name
			a.Each = append(a.Each, one)
		}
		a.Err = err.Error()
		return a
	}
	for _, l := range all.All() {
		a.Each = append(a.Each, acquired(l, nil))
	}
	return a
}

func (w *worker) job(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	id, answer := w.ask(line{Op: opOnce, Lock: jobLock})
	options := []jobs.Option{jobs.LockOptions(w.options(id, opOnce, w.life())...)}
	if w.chance(30) {
		options = append(options, jobs.RetryOnError())
	}
	var done func(line)
	ran, err := jobs.OncePer(ctx, w.locks, jobLock, jobPeriod, func(ctx context.Context) error {
		l := mutex.FromContext(ctx)
		answer(acquired(l, nil))
		w.follow(&ended, l)
		w.acts(l)
		if w.chance(3) {
			<-l.Context().Done()
		}
		_, done = w.askOf(opUnlock, l)
		return errBack
	}, options...)
	switch {
	case err == errBack:
		done(line{Said: okay})
	case ran:
		done(over(err))
	case err != nil:
		answer(acquired(nil, err))
	default:
		answer(line{Said: nothing})
	}
}

func (w *worker) task(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	id, answer := w.ask(line{Op: opTask})
	set, err := jobs.NewTasks(w.locks, taskSet, jobs.TaskOptions{Worker: w.Process,
		LockOptions: w.options(id, opTask, w.life())})
	if err != nil {
		panic(err)
	}
	if w.chance(70) {
		set.Add(ctx, string(rune('a'+w.rand.IntN(8))), "")
	}
	taken, err := set.Take(ctx, 1)
	if len(taken) == 0 {
		answer(line{Said: nothing, Err: fmt.Sprint(err)})
		return
	}
	t := taken[0]
	answer(acquired(t.Lock(), nil))
	var ended sync.WaitGroup
	defer ended.Wait()
	w.follow(&ended, t.Lock())
	w.acts(t.Lock())
	if w.chance(30) {
		t.Save(ctx, id)
	}
	if w.chance(5) {
		<-t.Context().Done()
	}
	w.end(t)
}

func (w *worker) end(t *jobs.Task) {
	l := t.Lock()
	_, answer := w.askOf(opUnlock, l)
	end := []func() error{
		func() error { return t.Finish(jobs.StateDone, "") },
		func() error { return t.Finish(jobs.StateFailed, "as seen") },
		t.FinishAndRemove, t.FinishAndRemove, t.Release,
	}[w.rand.IntN(5)]
	err := end()
	if err != nil && !errors.Is(err, mutex.ErrNotHeld) {
		if err = end(); err != nil && !errors.Is(err, mutex.ErrNotHeld) {
			err = l.Unlock()
		}
	}
	answer(over(err))
}

// adopt makes another handle of a hold, and either gives that up or goes on with it. It returns the one that is left.
func (w *worker) adopt(ended *sync.WaitGroup, l *mutex.Lock) *mutex.Lock {
	ctx, cancel := timeout(unlockTimeout)
	defer cancel()
	_, answer := w.askOf(opAdopt, l)
	other, err := w.locks.Adopt(ctx, l.Name(), l.UUID(), mutex.SafetyMargin(margin))
	if err != nil {
		other = l
	}
	answer(extended(other, err))
	if err != nil {
		return l
	}
	if other.Token() != l.Token() || other.UUID() != l.UUID() {
		w.complain("adopted %s with token %d instead of %s with token %d", other.UUID(), other.Token(), l.UUID(),
			l.Token())
	}
	if w.chance(50) {
		w.alive(other)
		other.Detach()
		return l
	}
	l.Detach()
	w.follow(ended, other)
	return other
}

// again asks for a lock that it has: for the same hold, and for another.
func (w *worker) again(l *mutex.Lock) {
	inner, err := w.locks.Lock(l.Context(), l.Name(), mutex.Reentrant())
	if err == nil {
		if inner.Token() != l.Token() {
			w.complain("asked for the hold with token %d once more and got one with token %d", l.Token(), inner.Token())
		}
		w.act(inner)
		err = inner.Unlock()
	}
	if err != nil && l.Context().Err() == nil {
		w.complain("once more the hold with token %d: %v", l.Token(), err)
	}
	other, err := w.locks.TryLock(l.Context(), l.Name())
	if _, isHeld := errors.AsType[*mutex.AlreadyHeldError](err); !isHeld && l.Context().Err() == nil {
		w.complain("its own lock once more: %v", err)
	}
	if err == nil {
		other.Unlock()
	}
}

// countPrefix is where the keys are that are only written together with an acquisition.
const countPrefix = resourcePrefix + ".count/"

type period struct {
	value, before string
	hold          *hold // that took it
}

// together checks that of several locks which are taken at once all are taken.
func (g *ledger) together(revision int64) {
	taken := map[string]int{}
	for _, h := range g.now {
		if h.token == revision && h.Way == opTryAll {
			taken[h.Op]++
		}
	}
	for _, h := range g.now {
		if n := taken[h.Op]; h.token == revision && h.Way == opTryAll && n != h.Names {
			g.found(ruleTogether, "%s took %q at revision %d with %d of %d locks", h.uuid, h.lock, h.token, n, h.Names)
		}
	}
}

// counted checks a write that an acquisition does, and that nobody does without it.
func (g *ledger) counted(k keyed) {
	lock, isCount := strings.CutPrefix(k.key, countPrefix)
	if !isCount || k.deleted {
		return
	}
	by, seen, _ := strings.Cut(k.value, " ")
	if h := g.now[lock]; h == nil || h.token != k.revision || h.Op != by {
		g.found(ruleCount, "%s wrote %s at revision %d and did not take %q with that, which %v has", by, k.key,
			k.revision, lock, h)
	}
	if was := strconv.FormatInt(g.counts[lock], 10); seen != was {
		g.found(ruleCount, "%s took %q at revision %d on condition that its key was written at %s, and it was at %s",
			by, lock, k.revision, seen, was)
	}
	g.counts[lock] = k.revision
}

// periodOf checks that periods only go forward, each with a hold of its own, or back by that hold.
func (g *ledger) periodOf(k keyed, before map[string]*hold) {
	was := g.periods[k.Lock]
	h := g.now[k.Lock]
	if h != nil && h.token == k.revision {
		now := parseTime(k.value)
		last := parseTime(was.value)
		if said, _ := time.Parse(time.RFC3339Nano, h.Period); !now.After(last) || !now.Equal(said) {
			g.found(rulePeriod, "%v took the period %v at revision %d after %v, and says that it has %v", h, now,
				k.revision, last, said)
		}
		g.periods[k.Lock] = period{k.value, was.value, h}
		return
	}
	mine := before[k.Lock] != nil && before[k.Lock] == was.hold
	if !mine || k.value != was.before {
		g.found(rulePeriod, "the period of %q was set from %q to %q at revision %d by nobody", k.Lock, was.value,
			k.value, k.revision)
	}
	g.periods[k.Lock] = period{value: k.value}
}

// task checks a change of a task: somebody adds it, takes it with its lock, writes it while having the lock, or ends
// both.
func (g *ledger) task(k keyed, before map[string]*hold) {
	lock := k.Lock
	was := g.tasks[lock]
	t := protocol.Task{}
	if !k.deleted {
		t, _ = protocol.Unmarshal[protocol.Task]([]byte(k.value))
	}
	had := before[lock]
	has := g.now[lock]
	by := func(h *hold) bool { return strings.HasPrefix(h.Op, t.By+"-") }
	allowed := false
	switch {
	case was == "":
		allowed = t.State == jobs.StateNew
	case has != nil && has.token == k.revision:
		allowed = t.State == protocol.StateInProgress && was != jobs.StateDone && by(has)
	case had != nil && had == has:
		allowed = t.State == protocol.StateInProgress && by(has)
	case had != nil && has == nil:
		allowed = t.State != protocol.StateInProgress && (k.deleted || by(had))
	}
	if !allowed {
		g.found(ruleTask, "%s: from %q to %q by %s at revision %d, when %v had it before and %v after", lock, was,
			t.State, t.By, k.revision, had, has)
	}
	if g.tasks[lock] = t.State; k.deleted {
		delete(g.tasks, lock)
	}
}
