package lockstore_test

import (
	"errors"
	"testing"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func death(r *metadata.Record) metadata.Statement {
	code := 3
	return metadata.Statement{Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseProcessEnded,
		Reason: "process 17 on billing-7f9c ended", EndedAt: metadata.Time{Time: at}, ExitCode: &code, Witness: "host",
		By: "w1", At: metadata.Time{Time: at}}
}

func TestStateIsIdempotent(t *testing.T) {
	w := parallel(t)
	r := w.hold("a/b", uuid(1))
	suspicion := death(r)
	suspicion.Cause = metadata.CauseNodeNotReady
	proctest.Must(t, w.RecordSuspicion(t.Context(), suspicion))
	for range 2 {
		proctest.Must(t, w.RecordProof(t.Context(), death(r)))
		proctest.Must(t, w.RecordSuspicion(t.Context(), suspicion)) // which is proven
	}
	if got := w.keys(w.l.Suspicions()); len(got) > 0 {
		t.Errorf("suspicions: %v", got)
	}
	lease, ttl := w.leaseOf(w.l.Death(uuid(1)))
	got, err := protocol.Unmarshal[metadata.Statement](w.get(w.l.Death(uuid(1)))[0].Value)
	if err != nil || got.Reason != death(r).Reason || got.ExitCode == nil || *got.ExitCode != 3 ||
		!got.EndedAt.Equal(at) || ttl != 25*60*60 {
		t.Errorf("stated is %+v for %d s, %v", got, ttl, err)
	}
	w.revoke(lease)
	proctest.Must(t, w.RecordProof(t.Context(), death(w.hold("b", uuid(2))))) // after the end of the lease
}

func TestStateOfAHoldThatMovedIsChanged(t *testing.T) {
	w := parallel(t)
	r := w.hold("a", uuid(1))
	for what, change := range map[string]*metadata.Record{
		"another uuid":   {Name: "a", UUID: uuid(2), Token: r.Token},
		"another lock":   {Name: "b", UUID: uuid(1), Token: r.Token},
		"an older token": {Name: "a", UUID: uuid(1), Token: r.Token - 1},
	} {
		w.moved(what, w.RecordProof(t.Context(), death(change)))
	}
	proctest.Must(t, w.RecordProof(t.Context(), death(r)))
	for _, value := range []string{uuid(2), uuid(1)} { // a script overwrites the key, and takes that back
		w.put(w.l.Field("a", lockrecord.FieldUUID), value)
		if err := w.RecordProof(t.Context(), death(r)); errors.Is(err, metadata.ErrChanged) != (value == uuid(2)) {
			t.Errorf("stated before, now with the uuid %s: %v", value, err)
		}
	}
	w.release(r)
	w.moved("stated before, and released", w.RecordProof(t.Context(), death(r)))
	next := w.hold("a", uuid(1)) // somebody copied the uuid: the old statement says nothing of this hold
	w.moved("the former hold", w.RecordSuspicion(t.Context(), death(r)))
	_, err := locktxn.Detach(w.l, holdOf(next)).Commit(t.Context(), w.etcd)
	proctest.Must(t, err)
	w.moved("a detached hold", w.RecordProof(t.Context(), death(next)))
	w.moved("a detached hold", w.RecordSuspicion(t.Context(), death(next)))
	if got := w.keys(w.l.Deaths()); len(got) > 0 {
		t.Errorf("deaths: %v", got)
	}
}

func TestWitnessNeedsRightsOnlyOnItsTwoAreas(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Auth())
	root := on(t, server.Client(t))
	r := root.hold("a", uuid(1))
	server.AddUser(t, "reader", "pw", root.l.Prefix(), etcdtest.Read)
	reader := lockstore.New(clientAs(t, server, "reader", "pw"), root.l)
	for what, err := range map[string]error{
		"state": reader.RecordProof(t.Context(), death(r)), "suspect": reader.RecordSuspicion(t.Context(), death(r)),
		"dispel": reader.WithdrawSuspicion(t.Context(), uuid(1)),
		"prove":  reader.CheckWitnessRights(t.Context(), uuid(9)),
	} {
		if got := etcdconn.Explain(err); errors.Is(err, metadata.ErrChanged) ||
			got != "etcd denies permission: the etcd user's role does not allow this on these keys" {
			t.Errorf("%s: %v", what, got)
		}
	}
	for _, area := range []string{root.l.Deaths(), root.l.Suspicions()} {
		if _, err := root.etcd.RoleGrantPermission(t.Context(), "reader", area, protocol.End(area),
			etcdtest.ReadWrite); err != nil {
			t.Fatal(err)
		}
	}
	witness := lockstore.New(clientAs(t, server, "reader", "pw"), root.l)
	if err := errors.Join(witness.CheckWitnessRights(t.Context(), uuid(9)),
		witness.RecordSuspicion(t.Context(), death(r)),
		witness.WithdrawSuspicion(t.Context(), uuid(1)), witness.RecordProof(t.Context(), death(r))); err != nil {
		t.Error(err)
	}
}
