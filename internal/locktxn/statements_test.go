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
		"another uuid": {Lock: "a", UUID: other, Token: h.Token}, "an older token": {Lock: "a", UUID: mine, Token: h.Token - 1},
		"another lock": {Lock: "b", UUID: mine, Token: h.Token}, "no token": {Lock: "b", UUID: mine},
	}
	for what, hold := range wrong {
		s.refused("state of "+what, locktxn.State(s.l, statement(hold, metadata.CauseRebooted), s.lease()))
		s.refused("suspect of "+what, locktxn.Suspect(s.l, statement(hold, metadata.CausePodDeleted), s.lease()))
	}
	s.done("release", locktxn.Release(s.l, h))
	s.refused("state of a hold that is over", locktxn.State(s.l, statement(h, metadata.CauseRebooted), s.lease()))
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
