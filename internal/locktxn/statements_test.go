package locktxn_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func statement(h locktxn.Hold, cause string) metadata.Statement {
	return metadata.Statement{Lock: h.Lock, UUID: h.UUID, Token: h.Token, Cause: cause, Witness: "host", By: "w1"}
}

func TestADeathIsStatedOnceInPlaceOfASuspicion(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	suspicion := statement(h, metadata.CauseNodeNotReady)
	s.done("suspect", locktxn.Suspect(s.l, suspicion, s.lease()))
	s.done("suspect again", locktxn.Suspect(s.l, suspicion, s.lease()))
	death := statement(h, metadata.CauseProcessEnded)
	s.done("state", locktxn.State(s.l, death, s.lease()))
	if got := s.keys(".suspicions/"); len(got) > 0 {
		t.Errorf("left of the suspicion: %v", got)
	}
	resp, err := s.etcd.Get(t.Context(), s.l.Death(mine))
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease == 0 {
		t.Fatalf("%v, %v", resp, err)
	}
	if got, err := protocol.Unmarshal[metadata.Statement](resp.Kvs[0].Value); err != nil || got != death {
		t.Errorf("stated is %+v, %v", got, err)
	}
	for what, txn := range map[string]locktxn.Txn{"state": locktxn.State(s.l, death, s.lease()),
		"suspect": locktxn.Suspect(s.l, suspicion, s.lease())} {
		again := s.refused(what+" again", txn)
		if len(locktxn.Keys(again, 0).Kvs) != 1 || len(locktxn.Keys(again, 1).Kvs) != 1 {
			t.Errorf("%s again reads %v", what, again.Responses)
		}
	}
}

func TestNothingIsStatedOfAnotherHold(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	wrong := map[string]locktxn.Hold{
		"another uuid":   {Lock: "a", UUID: other, Token: h.Token},
		"an older token": {Lock: "a", UUID: mine, Token: h.Token - 1},
		"another lock":   {Lock: "b", UUID: mine, Token: h.Token},
		"no token":       {Lock: "b", UUID: mine},
	}
	for what, hold := range wrong {
		s.refused("state of "+what, locktxn.State(s.l, statement(hold, metadata.CauseRebooted), s.lease()))
		s.refused("suspect of "+what, locktxn.Suspect(s.l, statement(hold, metadata.CausePodDeleted), s.lease()))
	}
	s.done("release", locktxn.Release(s.l, h))
	s.refused("state of a hold that is over", locktxn.State(s.l, statement(h, metadata.CauseRebooted), s.lease()))
}

// A late send of an acquire takes the lock for a holder that was dead before, with the uuid of its first hold.
func TestTheDeathIsStatedOfASecondHoldWithTheSameUUID(t *testing.T) {
	s := start(t)
	first := s.hold("a", mine)
	s.done("state", locktxn.State(s.l, statement(first, metadata.CauseProcessEnded), s.lease()))
	s.done("release", locktxn.Release(s.l, first))
	second := s.hold("a", mine)
	s.done("suspect", locktxn.Suspect(s.l, statement(second, metadata.CausePodDeleted), s.lease()))
	death := statement(second, metadata.CauseProcessEnded)
	s.done("state of the second", locktxn.State(s.l, death, s.lease()))
	s.refused("state of the second again", locktxn.State(s.l, death, s.lease()))
	kvs := locktxn.Keys(s.refused("state of the first", locktxn.State(s.l, statement(first, metadata.CauseRebooted),
		s.lease())), 1).Kvs
	if len(kvs) != 1 {
		t.Fatalf("stated are %v", kvs)
	}
	if got, err := protocol.Unmarshal[metadata.Statement](kvs[0].Value); err != nil || got != death {
		t.Errorf("stated is %+v, %v, want %+v", got, err, death)
	}
}

func TestADetachedHoldOutlivesItsProcess(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	death := statement(h, metadata.CauseProcessEnded)
	s.done("suspect", locktxn.Suspect(s.l, death, s.lease()))
	s.done("state", locktxn.State(s.l, death, s.lease()))
	s.done("detach", locktxn.Detach(s.l, h))
	if left := append(s.keys(".deaths/"), s.keys(".suspicions/")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if p := s.record("a").Process; p == nil || !p.Detached {
		t.Errorf("the record says %+v", p)
	}
	s.refused("state", locktxn.State(s.l, death, s.lease()))
	s.refused("suspect", locktxn.Suspect(s.l, death, s.lease()))
	s.refused("detach another", locktxn.Detach(s.l, locktxn.Hold{Lock: "a", UUID: mine, Token: h.Token + 1}))
}

func TestALeftoverOfADetachedHoldSaysNothing(t *testing.T) {
	s := start(t)
	s.put(s.l.Field("a", metadata.FieldDetached), "true")
	h := s.hold("a", mine)
	s.done("state", locktxn.State(s.l, statement(h, metadata.CauseProcessEnded), s.lease()))
	s.done("dispel", locktxn.Dispel(s.l, mine))
	before := strings.Join(s.keys(""), "\n")
	s.done("prove", locktxn.ProveWitness(s.l, other))
	if after := strings.Join(s.keys(""), "\n"); after != before {
		t.Errorf("the proof of the rights changed\n%s\nto\n%s", before, after)
	}
}
