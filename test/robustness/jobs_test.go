package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

// several takes several locks, all or none.
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
	all, err := take(ctx, names, append(w.options(id, op, w.LongOne), mutex.Attribute("names", len(names)))...)
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
		_, answer := w.ask(line{Op: opUnlock, Lock: l.Name(), UUID: l.UUID(), Token: l.Token()})
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
			one.Record = held.Lock
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

// job runs what is to be run once in each period, over all processes.
func (w *worker) job(ctx context.Context) {
	var ended sync.WaitGroup
	defer ended.Wait()
	id, answer := w.ask(line{Op: opOnce, Lock: jobLock})
	options := []jobs.Option{jobs.LockOptions(w.options(id, opOnce, w.life())...)}
	if w.chance(30) {
		options = append(options, jobs.PeriodBackOnError())
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
		_, done = w.ask(line{Op: opUnlock, Lock: l.Name(), UUID: l.UUID(), Token: l.Token()})
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

// task adds a task, now and then, and does one that nobody has.
func (w *worker) task(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	id, answer := w.ask(line{Op: opTask})
	set, err := jobs.NewTasks(w.locks, taskSet, jobs.TaskOptions{Worker: w.Process,
		Lock: w.options(id, opTask, w.life())})
	if err != nil {
		panic(err)
	}
	if w.chance(70) {
		set.Add(ctx, string(rune('a'+w.rand.IntN(8))), "")
	}
	captured, err := set.Capture(ctx, 1)
	if len(captured) == 0 {
		answer(line{Said: nothing, Err: fmt.Sprint(err)})
		return
	}
	t := captured[0]
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

// end says what became of a task.
func (w *worker) end(t *jobs.Task) {
	l := t.Lock()
	_, answer := w.ask(line{Op: opUnlock, Lock: l.Name(), UUID: l.UUID(), Token: l.Token()})
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
	ctx, cancel := context.WithTimeout(context.Background(), w.Unlock)
	defer cancel()
	_, answer := w.ask(line{Op: opAdopt, Lock: l.Name(), UUID: l.UUID(), Token: l.Token()})
	other, err := w.locks.Adopt(ctx, l.Name(), l.UUID(), mutex.SafetyMargin(w.Margin))
	a := over(err)
	a.UUID, a.Token = l.UUID(), l.Token()
	if err == nil {
		a.Until = stamp() + int64(time.Until(other.Deadline()))
	}
	answer(a)
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
