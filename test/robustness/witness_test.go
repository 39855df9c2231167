package robustness

import (
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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
		Lock: shown.Name, UUID: shown.UUID, Token: shown.Token, Cause: metadata.CauseProcessEnded,
		How: "to see what happens", Witness: metadata.WitnessHost, By: stranger, At: metadata.Time{Time: time.Now()},
	}
	switch s.rand.IntN(3) {
	case 0:
		statement.Token--
	case 1:
		statement.Lock += "x"
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
	switch h := g.now[s.Lock]; {
	case h == nil || h.uuid != s.UUID || h.token != s.Token:
		g.found(ruleDead, "a witness stated at revision %d that %s ended (token %d): %q is held by %v", k.revision,
			s.UUID, s.Token, s.Lock, h)
	case h.Detached:
		g.found(ruleDead, "a witness stated at revision %d that %v ended, which is detached from its process",
			k.revision, h)
	}
}

// proof expects the proof in etcd at the revision before a hold was removed as abandoned.
func (g *ledger) proof(h *hold) {
	s, said := g.deaths[h.uuid]
	switch {
	case !said || s.Lock != h.lock || s.Token != h.token || !s.Proof():
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
		if h.ending != nil && h.ending.Ended == metadata.EndedAbandoned && !j.hadEnded(h, h.gone) {
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
