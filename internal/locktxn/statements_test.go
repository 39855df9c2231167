package locktxn_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func statement(h locktxn.Hold, cause string) metadata.Statement {
	return metadata.Statement{Name: h.Lock, UUID: h.UUID, Token: h.Token, Cause: cause, Witness: "host", By: "w1"}
}

// A late send of an acquire takes the lock for a holder that was dead before, with the uuid of its first hold.
func TestDeathOfASecondHoldWithTheSameUUID(t *testing.T) {
	s := start(t)
	first := s.hold("a", mine)
	s.done("state", locktxn.PutProof(s.l, statement(first, metadata.CauseProcessEnded), s.lease()))
	s.done("release", locktxn.Release(s.l, first))
	second := s.hold("a", mine)
	s.done("suspect", locktxn.PutSuspicion(s.l, statement(second, metadata.CausePodDeleted), s.lease()))
	death := statement(second, metadata.CauseProcessEnded)
	s.done("state of the second", locktxn.PutProof(s.l, death, s.lease()))
	s.refused("state of the second again", locktxn.PutProof(s.l, death, s.lease()))
	kvs := locktxn.Keys(s.refused("state of the first", locktxn.PutProof(s.l, statement(first, metadata.CauseRebooted),
		s.lease())), 1).Kvs
	if len(kvs) != 1 {
		t.Fatalf("stated are %v", kvs)
	}
	if got, err := protocol.Unmarshal[metadata.Statement](kvs[0].Value); err != nil || got != death {
		t.Errorf("stated is %+v, %v, want %+v", got, err, death)
	}
}

func TestDetachedHoldOutlivesItsProcess(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	death := statement(h, metadata.CauseProcessEnded)
	s.done("state", locktxn.PutProof(s.l, death, s.lease()))
	s.put(s.l.Suspicion(mine), "{}") // the statement deleted those before it
	s.done("detach", locktxn.Detach(s.l, h))
	if left := append(s.keys(".deaths/"), s.keys(".suspicions/")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if p := s.record("a").Process; p == nil || !p.Detached {
		t.Errorf("the record says %+v", p)
	}
	s.refused("state", locktxn.PutProof(s.l, death, s.lease()))
	s.refused("suspect", locktxn.PutSuspicion(s.l, death, s.lease()))
	s.refused("detach another", locktxn.Detach(s.l, locktxn.Hold{Lock: "a", UUID: mine, Token: h.Token + 1}))
}

func TestLeftoverOfADetachedHoldIsIgnored(t *testing.T) {
	s := start(t)
	s.put(s.l.Field("a", lockrecord.FieldDetached), "true")
	h := s.hold("a", mine)
	s.done("state", locktxn.PutProof(s.l, statement(h, metadata.CauseProcessEnded), s.lease()))
	s.done("dispel", locktxn.DeleteSuspicion(s.l, mine))
	before := strings.Join(s.keys(""), "\n")
	s.done("prove", locktxn.CheckWitnessRights(s.l, other))
	if after := strings.Join(s.keys(""), "\n"); after != before {
		t.Errorf("the proof of the rights changed\n%s\nto\n%s", before, after)
	}
}

func request(h locktxn.Hold) metadata.FinishRequest {
	return metadata.FinishRequest{UUID: h.UUID, Token: h.Token, By: "ann", Source: "cli", Reason: "the deploy waits"}
}

func (s store) auditKey() string { return s.l.Audit(time.Unix(1_553_683_000, 0), "1") }

func (s store) audit() clientv3.Op { return clientv3.OpPut(s.auditKey(), "{}") }

// without returns the transaction with one compare left out.
func without(t locktxn.Txn, n int) locktxn.Txn {
	compares := append([]clientv3.Cmp{}, t.If[:n]...)
	t.If = append(compares, t.If[n+1:]...)
	return t
}

// acknowledge is an operator's mark.
func (s store) acknowledge(h locktxn.Hold, by string) locktxn.Txn {
	a := metadata.Acknowledgement{UUID: h.UUID, Token: h.Token, By: by, Source: "cli", Note: "the disk is full"}
	return locktxn.PutMark(s.l, h, lockrecord.FieldAcknowledged, protocol.Marshal(a), s.lease(), s.audit())
}

// A request that is older than the hold does not block a new one.
func TestAskOnce(t *testing.T) {
	s := start(t)
	s.put(s.l.Field("a", lockrecord.FieldAsked), "of an earlier hold")
	h := s.hold("a", mine)
	s.done("ask", locktxn.PutFinishRequestOnce(s.l, "a", request(h)))
	again := request(h)
	again.By = "bob"
	s.refused("ask once more", locktxn.PutFinishRequestOnce(s.l, "a", again))
	if got := s.record("a").FinishRequest; got == nil || got.By != "ann" {
		t.Errorf("the request is %+v", got)
	}
	s.done("the same without its guard", without(locktxn.PutFinishRequestOnce(s.l, "a", again), 2))
}

func (s store) extension(to string) locktxn.MoreTime {
	s.Helper()
	r := s.record("a")
	return locktxn.MoreTime{Record: r, AlertAt: to, AutoUnlockAt: to,
		Document: protocol.Marshal(metadata.MoreTime{UUID: r.UUID, Token: r.Token, By: "ann", Source: "cli",
			Reason: "slow disk", Seconds: 60}),
		Audit: s.audit()}
}

// An alive that found its auto-unlock as late already may have moved the alert since the operator saw both.
func TestMoreTimeDoesNotMoveTheAlertBack(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	e := s.extension(later)
	s.done("alive with a later alert", locktxn.Alive(s.l, h, last, soon, last))
	s.done("extend", locktxn.GiveMoreTime(s.l, e))
	if r := s.record("a"); metadata.FormatTime(r.AutoUnlockAt) != later || metadata.FormatTime(r.AlertAt) != last {
		t.Errorf("after it: %+v", r)
	}
}

// Each compare is needed: for each there is a hold that only this compare protects.
func TestOperatorNotesAreForOneHold(t *testing.T) {
	for what, write := range map[string]func(s store, h locktxn.Hold) locktxn.Txn{
		"mark": func(s store, h locktxn.Hold) locktxn.Txn { return s.acknowledge(h, "ann") },
		"ask once": func(s store,
			h locktxn.Hold) locktxn.Txn {
			return locktxn.PutFinishRequestOnce(s.l, "a", request(h))
		},
		"extend": func(s store, h locktxn.Hold) locktxn.Txn {
			e := s.extension(last)
			e.Record.UUID, e.Record.Token = h.UUID, h.Token
			return locktxn.GiveMoreTime(s.l, e)
		},
	} {
		t.Run(what, func(t *testing.T) {
			for n, wrong := range []func(*locktxn.Hold){
				func(h *locktxn.Hold) { h.UUID = other }, func(h *locktxn.Hold) { h.Token-- },
			} {
				s := start(t)
				h := s.hold("a", mine)
				wrong(&h)
				s.refused("of another hold", write(s, h))
				s.done("the same without its guard", without(write(s, h), n))
			}
			s := start(t)
			h := s.hold("a", mine)
			s.done("release", locktxn.Release(s.l, h))
			s.refused("of a hold that is over", write(s, h))
		})
	}
}

// Each compare is needed: for each there is a deadline that only this compare protects.
func TestMoreTimeAppliesToTheDisplayedHold(t *testing.T) {
	for n, change := range map[int]func(s store, e *locktxn.MoreTime){
		2: func(s store, e *locktxn.MoreTime) { // it is written meanwhile
			s.put(s.l.Field("a", lockrecord.FieldAutoUnlockAt), metadata.FormatTime(e.Record.AutoUnlockAt))
		},
		3: func(_ store, e *locktxn.MoreTime) { e.AutoUnlockAt = past }, // it would go back
	} {
		s := start(t)
		s.hold("a", mine)
		e := s.extension(last)
		change(s, &e)
		s.refused("extend", locktxn.GiveMoreTime(s.l, e))
		s.done("the same without its guard", without(locktxn.GiveMoreTime(s.l, e), n))
	}
}

// Each compare is needed: without it, what another person wrote is withdrawn.
func TestAcknowledgementAppliesToTheDisplayedHold(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	s.done("acknowledge", s.acknowledge(h, "ann"))
	shown := s.record("a").Acknowledgement
	s.done("acknowledge again", s.acknowledge(h, "bob"))
	withdraw := locktxn.WithdrawAcknowledgement(s.l, "a", shown, s.audit())
	s.refused("withdraw what was replaced", withdraw)
	if now := s.record("a").Acknowledgement; now == nil || now.By != "bob" {
		t.Errorf("the record has %+v", now)
	}
	s.done("the same without its guard", without(withdraw, 2))
}
