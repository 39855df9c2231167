package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

const clientVariable = "ROBUSTNESS_CLIENT"

type clientConfig struct {
	Process     string
	Seed        uint64
	Access      access
	Resource    string // URL of the fenced resource
	Notes       string // file
	Locks       []string
	ForgedToken bool // a mutant: the resource gets a number of the process instead of the token
	Plain       bool // one plain lock at a time, and little patience
	Jobs        bool // half of the turns are jobs
}

// attributeOp is the attribute of a record that tells which question took the lock, so that etcd's own history can be
// laid beside what clients were told.
const attributeOp = "op"

func client() {
	config, isClient := os.LookupEnv(clientVariable)
	if !isClient {
		return
	}
	var c clientConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	proctest.EndWithParent()
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run works until SIGTERM, releases everything and expects no goroutine to be left.
func (c clientConfig) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	before := goleak.IgnoreCurrent()
	file, err := os.OpenFile(c.Notes, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	p := &process{clientConfig: c, notes: notes{file: file}}
	etcd, err := c.Access.connect()
	if err != nil {
		return err
	}
	locks, err := mutex.New(etcd, mutex.Options{
		Owner: c.Process, AttemptTimeout: attemptTimeout, RequestTimeout: unlockTimeout, Now: p.now,
		Defaults: []mutex.Option{mutex.BacktraceDepth(2), mutex.SafetyMargin(margin)},
	})
	if err != nil {
		return err
	}
	p.etcd, p.locks = etcd, locks
	p.work(ctx)
	// it says what it could not finish in time; whether that did harm is seen in etcd
	if err := locks.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	etcd.Close()
	p.http.CloseIdleConnections()
	bye := line{At: stamp(), Bye: true}
	if err := goleak.Find(before); err != nil {
		bye.Err = err.Error()
	}
	p.notes.write(bye)
	return nil
}

type process struct {
	clientConfig
	notes
	etcd  *clientv3.Client
	locks *mutex.Client
	http  http.Client

	numbers atomic.Int64
	offset  atomic.Int64 // of the wall clock
}

// now is the wall clock of the process, which jumps about within what time.md allows between two machines.
func (p *process) now() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }

func (p *process) work(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range workers {
		w := &worker{process: p, rand: rand.New(rand.NewPCG(p.Seed, uint64(i)))}
		wg.Go(func() {
			for ctx.Err() == nil {
				w.turn(ctx)
			}
		})
	}
	wg.Go(func() {
		r := rand.New(rand.NewPCG(p.Seed, 99))
		for ctx.Err() == nil {
			p.offset.Store(int64(rand.N(2*clockOff) - clockOff))
			sleep(ctx, time.Second+time.Duration(r.Int64N(int64(2*time.Second))))
		}
	})
	wg.Wait()
}

type worker struct {
	*process
	rand *rand.Rand
}

func (w *worker) chance(percent int) bool { return w.rand.IntN(100) < percent }

func (w *worker) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rand.Int64N(int64(to-from)+1))
}

// ask records a request and returns the function that records its answer.
func (w *worker) ask(l line) (id string, answer func(line)) {
	l.ID = w.Process + "-" + strconv.FormatInt(w.numbers.Add(1), 10)
	l.At = stamp()
	w.notes.write(l)
	return l.ID, func(a line) {
		a.ID, a.At = l.ID, stamp()
		w.notes.write(a)
	}
}

func (w *worker) askOf(op string, l *mutex.Lock) (id string, answer func(line)) {
	return w.ask(line{Op: op, Lock: l.Name(), UUID: l.UUID(), Token: l.Token()})
}

func (w *worker) turn(ctx context.Context) {
	switch n := w.rand.IntN(100); {
	case w.Jobs && n < 50:
		w.job(ctx)
	case w.Plain || n >= 22:
		w.single(ctx)
	case n >= 12:
		w.task(ctx)
	case n >= 7:
		w.job(ctx)
	default:
		w.several(ctx)
	}
}

func (w *worker) single(ctx context.Context) {
	name := w.Locks[w.rand.IntN(len(w.Locks))]
	l := w.acquire(ctx, name)
	if l == nil {
		sleep(ctx, w.between(0, 60*time.Millisecond))
		return
	}
	var ended sync.WaitGroup
	defer ended.Wait()
	w.follow(&ended, l)
	if w.chance(6) {
		l = w.adopt(&ended, l)
	}
	if whole(l.Name()) == 1 && w.chance(6) {
		w.again(l)
	}
	forgets := w.chance(2) // a holder that hangs until its time is over
	w.acts(l)
	if forgets && w.chance(50) {
		<-l.Context().Done()
		sleep(ctx, w.between(0, 3*time.Second))
		w.act(l) // late, by a holder that does not know better
		w.write(l)
	}
	if forgets && w.chance(50) && ctx.Err() == nil {
		<-l.Context().Done()
		return
	}
	w.unlock(l)
	if w.chance(20) {
		w.write(l) // late
	}
}

func (w *worker) complain(format string, args ...any) {
	w.notes.write(line{At: stamp(), Wrong: fmt.Sprintf(format, args...)})
}

func (w *worker) follow(ended *sync.WaitGroup, l *mutex.Lock) {
	ended.Go(func() {
		<-l.Context().Done()
		if !errors.Is(context.Cause(l.Context()), mutex.ErrDetached) {
			w.notes.write(line{At: stamp(), Ended: true, UUID: l.UUID(), Token: l.Token()})
		}
	})
}

func (w *worker) acts(l *mutex.Lock) {
	for range w.rand.IntN(5) {
		w.act(l)
		sleep(l.Context(), w.between(0, 120*time.Millisecond))
	}
}

func (w *worker) life() time.Duration {
	if w.chance(50) {
		return longLife
	}
	return shortLife
}

func (w *worker) timeout() time.Duration {
	if w.Plain {
		return w.between(200*time.Millisecond, time.Second)
	}
	return w.between(300*time.Millisecond, 4*time.Second)
}

func (w *worker) options(id, way string, life time.Duration) []mutex.Option {
	return []mutex.Option{
		mutex.AlertAfter(life / 4), mutex.AutoUnlockAfter(life), mutex.Attribute(attributeOp, id),
		mutex.Attribute("way", way),
	}
}

// acquire takes the lock in one of the possible ways.
func (w *worker) acquire(ctx context.Context, name string) *mutex.Lock {
	op := []string{opTry, opLock, opLock, opLock, opBarge, opCount}[w.rand.IntN(6)]
	ctx, cancel := context.WithTimeout(ctx, w.timeout())
	defer cancel()
	part := 0
	kind := []mutex.Option(nil)
	seen := int64(0)
	switch {
	case op == opCount:
		r, err := w.etcd.Get(ctx, countPrefix+name)
		if err != nil {
			return nil
		}
		for _, kv := range r.Kvs {
			seen = kv.ModRevision
		}
	case !w.Plain && w.chance(25):
		name, part, kind = w.part()
	}
	id, answer := w.ask(line{Op: op, Lock: name, Part: part})
	options := append(kind, w.options(id, op, w.life())...)
	take := w.locks.Lock
	switch op {
	case opTry:
		take = w.locks.TryLock
	case opBarge:
		options = append(options, mutex.WithoutQueue())
	case opCount:
		take = w.locks.TryLock
		options = append(options, mutex.If(clientv3.Compare(clientv3.ModRevision(countPrefix+name), "=", seen)),
			mutex.Then(clientv3.OpPut(countPrefix+name, id+" "+strconv.FormatInt(seen, 10))))
	}
	l, err := take(ctx, name, options...)
	answer(acquired(l, err))
	return l
}

// part chooses a part of a lock that several can hold: some permits of a semaphore, to read, or to write.
func (w *worker) part() (name string, part int, options []mutex.Option) {
	switch w.rand.IntN(4) {
	case 0:
		return sharedLock, 1, []mutex.Option{mutex.Shared()}
	case 1: // a plain lock keeps out readers, too
		return sharedLock, manyReaders, []mutex.Option{mutex.Exclusive()}[w.rand.IntN(2):]
	}
	if w.chance(10) {
		return poolLock, poolLimit, []mutex.Option{mutex.Exclusive()}
	}
	part = 1 + w.rand.IntN(poolLimit-1)
	return poolLock, part, []mutex.Option{mutex.Semaphore(poolLimit), mutex.Weight(part)}
}

// acquired records the answer to an acquisition. After a refusal, earlier attempts may still be in flight: only etcd's
// history knows.
func acquired(l *mutex.Lock, err error) line {
	var held *mutex.HeldError
	switch {
	case err == nil:
		return line{Said: okay, Record: l.Name(), UUID: l.UUID(), Token: l.Token(),
			Until: stamp() + int64(time.Until(l.Deadline()))}
	case errors.As(err, &held) && held.Holder.Name != "":
		return line{Said: refused, By: held.Holder.UUID, ByTok: held.Holder.Token, Err: err.Error()}
	}
	return line{Said: nothing, Err: err.Error()}
}

func (w *worker) act(l *mutex.Lock) {
	something := []func(*mutex.Lock){w.write, w.alive, w.guarded}
	something[w.rand.IntN(len(something))](l)
}

func (w *worker) alive(l *mutex.Lock) {
	ctx, cancel := timeout(unlockTimeout)
	defer cancel()
	_, answer := w.askOf(opAlive, l)
	answer(extended(l, l.Alive(ctx, "at work for", l.UUID())))
}

func extended(l *mutex.Lock, err error) line {
	a := over(err)
	a.UUID, a.Token = l.UUID(), l.Token()
	if err == nil {
		a.Until = stamp() + int64(time.Until(l.Deadline()))
	}
	return a
}

func (w *worker) unlock(l *mutex.Lock) {
	_, answer := w.askOf(opUnlock, l)
	answer(over(l.Unlock()))
}

// over reads the errors of Alive and Unlock.
func over(err error) line {
	var gone *mutex.LostError
	switch {
	case err == nil:
		return line{Said: okay}
	case errors.As(err, &gone) && gone.Certain:
		return line{Said: lost, Err: err.Error()}
	}
	return line{Said: maybe, Err: err.Error()}
}

// write writes to the resource behind the fence. The fence does not know whether the hold still stands; it compares
// tokens.
func (w *worker) write(l *mutex.Lock) {
	token := l.Token()
	if w.ForgedToken {
		token = 1_000_000 + w.numbers.Load()
	}
	_, answer := w.askOf(opWrite, l)
	request, err := http.NewRequest(http.MethodPost, w.Resource+"/"+url.PathEscape(l.Name()),
		strings.NewReader(l.UUID()))
	if err != nil {
		panic(err)
	}
	fencing.SetHeader(request.Header, token)
	resp, err := w.http.Do(request)
	if err != nil {
		answer(line{Said: maybe, Err: err.Error()})
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	said := line{Said: okay}
	if resp.StatusCode != http.StatusOK {
		said = line{Said: refused, Err: resp.Status}
	}
	answer(said)
}

func (w *worker) guarded(l *mutex.Lock) {
	ctx, cancel := timeout(attemptTimeout)
	defer cancel()
	_, answer := w.askOf(opGuard, l)
	resp, err := w.etcd.Txn(ctx).If(l.Guard()).Then(clientv3.OpPut(resourcePrefix+l.Name(),
		strconv.FormatInt(l.Token(), 10))).Commit()
	switch {
	case err != nil:
		answer(line{Said: maybe, Err: err.Error()})
	case resp.Succeeded:
		answer(line{Said: okay})
	default:
		answer(line{Said: lost})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
