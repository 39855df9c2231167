package lockstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// acknowledged returns the hold in r after an acknowledgement.
func (w world) acknowledged(r *metadata.Record, who string) *metadata.Record {
	w.Helper()
	a := wanted(protocol.VerbAcknowledge, r)
	a.Actor = who
	a.ID += who
	w.did(r, a)
	return w.record(r.Name)
}

func withdrawal(r *metadata.Record) protocol.Action {
	a := wanted(protocol.VerbWithdraw, r)
	a.Seconds = 0
	a.Reason = ""
	a.ID += "-withdrawal"
	return a
}

func TestAcknowledge(t *testing.T) {
	w := parallel(t)
	r := w.hold("a/b", uuid(1))
	a := wanted(protocol.VerbAcknowledge, r)
	w.did(r, a)
	now := w.record("a/b")
	want := metadata.Acknowledgement{UUID: r.UUID, Token: r.Token, By: "ann", Source: "cli", At: a.At,
		Until: metadata.Time{Time: a.At.Add(30 * time.Minute)}, Note: a.Reason, Revision: now.Revision}
	if now.Acknowledgement == nil || *now.Acknowledgement != want || len(now.Problems) > 0 ||
		now.DeadlineRevision != r.DeadlineRevision {
		t.Errorf("the record is %+v, acknowledged %+v", now, now.Acknowledgement)
	}
	if _, ttl := w.leaseOf(w.l.Field("a/b", lockrecord.FieldAcknowledged)); ttl != 1800 {
		t.Errorf("the key goes after %d s, want 1800", ttl)
	}
	w.audited(a)
}

// The key moves to the lease of the later acknowledgement, so it survives the end of the first lease. It ends with the
// hold, however the hold ends.
func TestLastAcknowledgementStaysUntilItsHoldEnds(t *testing.T) {
	w := parallel(t)
	r := w.hold("a", uuid(1))
	w.acknowledged(r, "ann")
	before := w.leases()
	r = w.acknowledged(r, "bob")
	for _, l := range before {
		w.revoke(l.ID)
	}
	if now := w.record("a"); now.Acknowledgement == nil || now.Acknowledgement.By != "bob" {
		t.Errorf("after the end of the first lease: %+v", now.Acknowledgement)
	}
	w.did(r, action(r))
	if got := w.hold("a", uuid(2)); got.Acknowledgement != nil || len(w.keys(w.l.Record("a"))) != 4 {
		t.Errorf("the next hold has %+v: %v", got.Acknowledgement, w.keys(w.l.Record("a")))
	}
	ending, err := w.ReadEnding(t.Context(), r.HistoryID())
	if err != nil || ending == nil || ending.Acknowledgement == nil || ending.Acknowledgement.By != "bob" {
		t.Errorf("the ending is %+v, %v", ending, err)
	}
}

func TestWithdrawAcknowledgement(t *testing.T) {
	w := parallel(t)
	r := w.acknowledged(w.hold("a", uuid(1)), "ann")
	a := withdrawal(r)
	w.did(r, a)
	now := w.record("a")
	if now.Acknowledgement != nil || now.UUID != r.UUID || len(w.keys(w.l.Record("a"))) != 4 {
		t.Errorf("the record is %+v: %v", now, w.keys(w.l.Record("a")))
	}
	actions, err := w.ReadAudit(t.Context(), 10)
	if err != nil || len(actions) != 2 || actions[0] != a && actions[1] != a {
		t.Errorf("audit %+v, %v", actions, err)
	}
	var refused *protocol.RefusedError
	if err := w.do(now, a); !errors.As(err, &refused) {
		t.Errorf("withdrawn twice: %v", err)
	}
}
