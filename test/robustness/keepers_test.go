package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// byHand is the way of those who write the keys themselves, as a script would, and know nothing of queues.
const byHand = "hand"

const (
	handLife  = 4 * time.Second
	brinkLife = 8 * time.Second // it is warned of for long enough when its time is over
	handEvery = 300 * time.Millisecond
	handTry   = 700 * time.Millisecond
)

// keepers hold locks and work all the time. Whatever dies, none of them may lose its lock: what cuts them off cuts the
// unlockers off as well.
type keepers struct {
	layout protocol.Layout
	found  finder
	left   leftBehind
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	live map[string]string // lock by uuid
}

func (s *stage) startKeepers(etcd *clientv3.Client, brinkmen int) {
	ctx, stop := context.WithCancel(context.Background())
	k := &keepers{layout: s.layout, found: s.found, left: leaveBehind(), stop: stop, live: map[string]string{}}
	s.keepers = k
	s.t.Cleanup(k.end)
	k.wg.Go(func() { k.keep(ctx, etcd, "keeper/hand", 0) })
	k.wg.Go(func() { k.keep(ctx, etcd, "keeper/slow clock", -10*time.Minute) })
	k.wg.Go(func() { k.keep(ctx, etcd, keptByCommand, 0) })
	k.wg.Go(func() { k.heartbeat(ctx, etcd, "keeper/library") })
	for i := range brinkmen {
		k.wg.Go(func() { k.brinkman(ctx, etcd, fmt.Sprint("brink/", i), rand.New(rand.NewPCG(s.Seed, uint64(7+i)))) })
	}
}

func (k *keepers) lives(uuid, lock string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.live[uuid] = lock
}

// byHandHold is a hold of somebody who writes the keys.
type byHandHold struct {
	*keepers
	etcd  *clientv3.Client
	hold  locktxn.Hold
	clock time.Duration
	life  time.Duration
}

// take tries until the lock is its own. It sends the same until it knows, as docs/protocol.md wants.
func (k *keepers) take(ctx context.Context, etcd *clientv3.Client, lock string, clock, life time.Duration) *byHandHold {
	h := &byHandHold{keepers: k, etcd: etcd, hold: locktxn.Hold{Lock: lock, UUID: uuid.NewString()}, clock: clock,
		life: life}
	for ctx.Err() == nil {
		now := time.Now().Add(clock)
		draft := lockrecord.Draft{
			UUID:     h.hold.UUID,
			Identity: metadata.Identity{Owner: "keeper"},
			LockedAt: now, AlertAt: now.Add(life / 16), AutoUnlockAt: now.Add(life),
			Attributes: map[string]any{attributeOp: lock, "way": byHand},
		}
		if lock == keptByCommand {
			draft.PID = k.left.pid
			draft.Process = k.left.process
		}
		fields, err := draft.Fields()
		if err != nil {
			panic(err)
		}
		try, cancel := context.WithTimeout(ctx, handTry)
		r, err := locktxn.Acquire(k.layout, locktxn.PlainClaim(lock), h.hold.UUID, fields, true).Commit(try, etcd)
		cancel()
		if err == nil && r.Succeeded {
			h.hold.Token = r.Header.Revision
			return h
		}
		if err == nil {
			record := lockrecord.Decode(lock,
				locktxn.Fields(k.layout, (*clientv3.GetResponse)(r.Responses[0].GetResponseRange())))
			if record.UUID == h.hold.UUID {
				h.hold.Token = record.Token
				return h
			}
		}
		sleep(ctx, handEvery)
	}
	return nil
}

// alive extends once: gone is a definite answer.
func (h *byHandHold) alive(ctx context.Context) (gone bool, err error) {
	now := time.Now().Add(h.clock)
	try, cancel := context.WithTimeout(ctx, handTry)
	defer cancel()
	r, err := locktxn.Alive(h.layout, h.hold, metadata.FormatTime(now.Add(h.life/16)),
		metadata.FormatTime(now.Add(h.life)), lockrecord.FormatAlive(now, "")).Commit(try, h.etcd)
	return err == nil && !r.Succeeded, err
}

func (h *byHandHold) release() {
	for range 20 {
		try, cancel := timeout(handTry)
		_, err := locktxn.Release(h.layout, h.hold).Commit(try, h.etcd)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(handEvery)
	}
}

func (k *keepers) keep(ctx context.Context, etcd *clientv3.Client, lock string, clock time.Duration) {
	h := k.take(ctx, etcd, lock, clock, handLife)
	if h == nil {
		return
	}
	k.lives(h.hold.UUID, lock)
	for ctx.Err() == nil {
		if gone, _ := h.alive(ctx); gone {
			k.found(ruleKeeper, "%q is lost", lock)
			return
		}
		sleep(ctx, handEvery)
	}
	h.release()
}

// heartbeat holds with the heartbeat of the client library, with a life longer than any outage of a run.
func (k *keepers) heartbeat(ctx context.Context, etcd *clientv3.Client, lock string) {
	c, err := mutex.New(etcd, mutex.Options{Owner: "keeper", AttemptTimeout: handTry})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	l, err := c.Lock(ctx, lock, mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(2*time.Minute),
		mutex.Attribute(attributeOp, lock))
	if err != nil {
		return
	}
	k.lives(l.UUID(), lock)
	select {
	case <-l.Lost():
		k.found(ruleKeeper, "%q: %v", lock, context.Cause(l.Context()))
	case <-ctx.Done():
	}
	if err := l.Unlock(); errors.Is(err, mutex.ErrNotHeld) {
		k.found(ruleKeeper, "unlock %q: %v", lock, err)
	}
}

// brinkman extends when the unlockers are about to remove its lock. Often it comes too late, which is its own fault.
func (k *keepers) brinkman(ctx context.Context, etcd *clientv3.Client, lock string, r *rand.Rand) {
	for ctx.Err() == nil {
		h := k.take(ctx, etcd, lock, 0, brinkLife)
		if h == nil {
			return
		}
		for gone := false; !gone && ctx.Err() == nil; {
			sleep(ctx, brinkLife+skew-100*time.Millisecond+time.Duration(r.Int64N(int64(250*time.Millisecond))))
			gone, _ = h.alive(ctx)
		}
		h.release()
	}
}

func (k *keepers) end() {
	k.stop()
	k.wg.Wait()
	k.left.end()
}

// abandonedGrace is how long unlockers wait after they learned that a holder has ended.
const abandonedGrace = time.Second

// stranger signs the forged statements of a run.
const stranger = "stranger"

// startWitness starts the witness of this machine. It sees every process of the run end, and reaches etcd on the way of
// the unlockers, where statements come late, come twice and get lost.
func (s *stage) startWitness() *child { return s.program("witness", "unlocker", "witness") }

func (s *stage) killWitness() (func(), bool) {
	return func() { s.witness = s.startWitness() }, s.ends(s.witness)
}

// stateFalsely says of a hold what nobody may believe: that of another token, of another lock, or without proof. It
// guards nothing, and replaces what a witness said.
func (s *stage) stateFalsely() (func(), bool) {
	ctx, cancel := timeout(2 * time.Second)
	defer cancel()
	shown, held := s.someHold(ctx, func(string) bool { return true }) // those that must not lose theirs, too
	if !held {
		return nil, false
	}
	statement := metadata.Statement{
		Name: shown.Name, UUID: shown.UUID, Token: shown.Token, Cause: metadata.CauseProcessEnded,
		Reason: "to see what happens", Witness: metadata.WitnessHost, By: stranger, At: metadata.Time{Time: time.Now()},
	}
	switch s.rand.IntN(3) {
	case 0:
		statement.Token--
	case 1:
		statement.Name += "x"
	case 2:
		statement.Cause = metadata.CauseNodeNotReady
	}
	lease, err := s.direct.Grant(ctx, 60)
	if err != nil {
		return nil, false
	}
	_, err = s.direct.Put(ctx, s.layout.Death(shown.UUID), protocol.Marshal(statement), clientv3.WithLease(lease.ID))
	return nil, err == nil
}

type statement struct {
	metadata.Statement
	revision int64
	at       int64 // stamp
}

// stated notes a statement. One of a witness must be about a hold that stands.
func (g *ledger) stated(k keyed) {
	if k.deleted {
		delete(g.deaths, k.ID)
		return
	}
	s, err := protocol.Unmarshal[metadata.Statement]([]byte(k.value))
	if err != nil {
		g.found(ruleDead, "%s cannot be read: %v", k.key, err)
		return
	}
	said := statement{s, k.revision, k.at}
	g.deaths[k.ID] = said
	if s.By == stranger {
		return
	}
	g.statements = append(g.statements, said)
	switch h := g.now[s.Name]; {
	case h == nil || h.uuid != s.UUID || h.token != s.Token:
		g.found(ruleDead, "a witness stated at revision %d that %s ended (token %d): %q is held by %v", k.revision,
			s.UUID, s.Token, s.Name, h)
	case h.Detached:
		g.found(ruleDead, "a witness stated at revision %d that %v ended, which is detached from its process",
			k.revision, h)
	}
}

// proof expects the proof in etcd at the revision before a hold was removed as abandoned.
func (g *ledger) proof(h *hold) {
	s, said := g.deaths[h.uuid]
	switch {
	case !said || s.Name != h.lock || s.Token != h.token || !s.IsProof():
		g.found(ruleDead, "%v was removed at revision %d for %+v", h, h.ended, s.Statement)
	case h.touched > s.revision:
		g.found(ruleDead, "%v was removed at revision %d: it was extended at %d, after its death was stated at %d", h,
			h.ended, h.touched, s.revision)
	case h.Detached:
		g.found(ruleDead, "%v was removed at revision %d, and is detached from its process", h, h.ended)
	}
}

// dead checks that witnesses spoke of processes that had ended, and that nobody else lost a lock for it.
func (j *judgement) dead() {
	for _, h := range j.holds {
		if h.ending != nil && h.ending.Cause == metadata.EndingAbandoned && !j.hadEnded(h, h.gone) {
			j.found(ruleDead, "%v was removed %s after the beginning, its process had not ended", h,
				seconds(h.gone, j.began))
		}
	}
	for _, s := range j.statements {
		if h := j.known[holdID{s.UUID, s.Token}]; h != nil && !j.hadEnded(h, s.at) {
			j.found(ruleDead, "a witness stated %s after the beginning that %v ended, whose process had not",
				seconds(s.at, j.began), h)
		}
	}
}

// hadEnded reports whether the process that took the hold had ended: the questions of a client begin with its name. One
// that ended in order may have left what it could not give back.
func (j *judgement) hadEnded(h *hold, at int64) bool {
	name := h.Op[:max(0, strings.LastIndexByte(h.Op, '-'))]
	p := j.processes[name]
	return p != nil && !p.Running() && (p.killed == 0 || p.killed <= at)
}
