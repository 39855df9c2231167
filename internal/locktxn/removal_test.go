package locktxn_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestAutoUnlock(t *testing.T) {
	s := start(t)
	h := s.hold("a", mine)
	judged := s.removal(s.record("a"), "u1")
	s.put(s.l.Field("a", lockrecord.FieldAutoUnlockAt), soon) // a holder that extends to the same second counts
	s.refused("auto-unlock after the same time was written again", locktxn.AutoUnlock(s.l, judged))

	judged = s.removal(s.record("a"), "u1")
	s.done("alive", locktxn.Alive(s.l, h, last, last, last))
	s.refused("auto-unlock after the holder extended", locktxn.AutoUnlock(s.l, judged))
	s.done("release", locktxn.Release(s.l, h))
	s.refused("auto-unlock after the release", locktxn.AutoUnlock(s.l, judged))
	s.hold("a", other)
	s.refused("auto-unlock after another took the lock", locktxn.AutoUnlock(s.l, judged))

	again := s.removal(s.record("a"), "u1")
	s.done("auto-unlock", locktxn.AutoUnlock(s.l, again))
	if got := s.keys(""); len(got) != 1 || !strings.HasPrefix(got[0], s.l.History(other)+"={") {
		t.Errorf("after the auto-unlock: %v", got)
	}
	resp := s.refused("the same auto-unlock, sent again", locktxn.AutoUnlock(s.l, again))
	if history := locktxn.Keys(resp, 1).Kvs; len(history) != 1 || string(history[0].Value) != again.History() {
		t.Errorf("the second attempt cannot see that the first one did it: %v", history)
	}
}

func TestRemovalOfARecordWithoutAHolder(t *testing.T) {
	s := start(t)
	s.put(s.l.Field("a", lockrecord.FieldAutoUnlockAt), soon) // no uuid: nobody holds it
	left := s.removal(s.record("a"), "u1")
	s.hold("b", mine)
	s.done("acquire, which the leftovers do not hinder", s.acquire("a", other))
	s.refused("auto-unlock of what is now held", locktxn.AutoUnlock(s.l, left))
	s.refused("force-unlock of what is now held", locktxn.ForceUnlock(s.l, left))

	s.put(s.l.Field("c", lockrecord.FieldAutoUnlockAt), soon)
	s.done("auto-unlock", locktxn.AutoUnlock(s.l, s.removal(s.record("c"), "u1")))
	if got := append(s.keys("c/"), s.keys(".history/")...); len(got) > 0 {
		t.Errorf("leftovers of a record without a holder: %v", got)
	}
}

func TestRemovalSparesForeignKeys(t *testing.T) {
	s := start(t)
	s.hold("a", mine)
	s.put(s.l.Record("a")+"b/uuid", "another program's")
	s.put(s.l.Record("a")+"UPPER", "another program's")
	r := s.removal(s.record("a"), "u1")
	if !r.Record.HasForeignKeys() {
		t.Fatalf("the record does not show the foreign keys: %+v", r.Record)
	}
	record := s.l.Record("a")
	r.Ranges = []protocol.Range{{From: record + "a", To: record + "b"}, {From: record + "c", To: record + "z"}}
	s.done("auto-unlock", locktxn.AutoUnlock(s.l, r))
	if got := s.keys("a/"); len(got) != 2 {
		t.Errorf("left in the range: %v, want the two foreign keys", got)
	}
}

func TestEndingIsNeverTooLarge(t *testing.T) {
	s := start(t)
	r := &metadata.Record{Name: "a", UUID: mine, Token: 1, Attributes: map[string]any{},
		Alive: &metadata.Alive{Progress: strings.Repeat("\x01", 1000)}}
	for i := range lockrecord.MaxAttributes {
		r.Attributes[strings.Repeat("k", 900)+fmt.Sprint(i)] = strings.Repeat("\x01", 1000) // six bytes each in JSON
	}
	removal := s.removal(r, "u1")
	if n := len(removal.History()); n > lockrecord.MaxRecordBytes {
		t.Errorf("the ending has %d bytes", n)
	}
	if e, err := protocol.Unmarshal[metadata.Ending]([]byte(removal.History())); err != nil || e.UUID != mine ||
		e.Attributes != nil {
		t.Errorf("ending %+v, %v", e, err)
	}
}

func TestRemoveAbandoned(t *testing.T) {
	s := start(t)
	judge := func() *locktxn.Removal {
		r := s.record("a")
		st := metadata.Statement{Name: "a", UUID: r.UUID, Token: r.Token, Cause: metadata.CauseRebooted}
		st.Revision = s.put(s.l.Death(r.UUID), protocol.Marshal(st))
		lockrecord.AttachStatements(r, &st, nil)
		if !r.ProvenDead() {
			t.Fatal("no proof")
		}
		return s.removal(r, "u1")
	}
	h := s.hold("a", mine)
	unproven := s.removal(s.record("a"), "u1")
	s.refused("removal without a proof", locktxn.RemoveAbandoned(s.l, unproven))

	judged := judge()
	s.done("alive", locktxn.Alive(s.l, h, last, last, last))
	s.refused("removal after the holder extended", locktxn.RemoveAbandoned(s.l, judged))
	judged = judge()
	s.done("alive of a hold that somebody else extended", locktxn.Alive(s.l, h, last, last, last))
	s.refused("removal after a sign of life", locktxn.RemoveAbandoned(s.l, judged))
	judged = judge()
	s.put(s.l.Death(mine), "stated again")
	s.refused("removal after the proof was written anew", locktxn.RemoveAbandoned(s.l, judged))
	judged = judge()
	s.done("take back", locktxn.Txn{Then: []clientv3.Op{clientv3.OpDelete(s.l.Death(mine))}})
	s.refused("removal after the proof was taken back", locktxn.RemoveAbandoned(s.l, judged))
	judged = judge()
	s.done("release", locktxn.Release(s.l, h))
	s.refused("removal after the release", locktxn.RemoveAbandoned(s.l, judged))
	s.hold("a", other)
	s.refused("removal after another took the lock", locktxn.RemoveAbandoned(s.l, judged))
	s.done("release", locktxn.Release(s.l, locktxn.Hold{Lock: "a", UUID: other, Token: s.record("a").Token}))
	s.hold("a", mine)
	s.refused("removal of a later hold with the same uuid", locktxn.RemoveAbandoned(s.l, judged))

	judged = judge()
	s.done("removal of the abandoned lock", locktxn.RemoveAbandoned(s.l, judged))
	if left := s.keys("a/"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if got := s.keys(".history/"); len(got) != 1 {
		t.Errorf("the history has %v", got)
	}
}
