package lockstore_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func action(r *metadata.Record) protocol.Action {
	return protocol.Action{
		ID: "1", At: metadata.Time{Time: at}, Actor: "ann", Source: "cli", Verb: "force-unlock", Lock: r.Name,
		UUID: r.UUID, Token: r.Token,
		Holder: "billing on billing-7f9c", Reason: "the pod is gone for good", Result: "success",
	}
}

func TestForceUnlock(t *testing.T) {
	w := parallel(t)
	r := w.hold("a/b", uuid(1))
	w.alive(r, at.Add(time.Hour)) // the person saw it before
	onlyUnchanged := protocol.ActionTarget{Hold: r, IfUnchanged: true}
	_, err := w.Perform(t.Context(), protocol.VerbForceUnlock, onlyUnchanged, action(r))
	w.moved("force unlock of a hold that is unchanged", err)
	w.did(r, action(r))
	if left := w.keys(w.l.Record("a/b")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	ending, err := w.ReadEnding(t.Context(), uuid(1))
	if err != nil || ending == nil || ending.Name != "a/b" || ending.Token != r.Token {
		t.Errorf("ending %+v, %v", ending, err)
	}
	w.audited(action(r))
	for _, key := range append(w.keys(w.l.Audits()), w.keys(w.l.Histories())...) {
		if w.get(key)[0].Lease == 0 {
			t.Errorf("%s has no lease", key)
		}
	}
}

func TestForceUnlockInAFullEtcdOfAHoldThatIsOver(t *testing.T) {
	line, w := wired(t)
	r := w.hold("a", uuid(1))
	line.once(func(func() error) error {
		line.once(func(look func() error) error {
			defer w.release(r)
			return look()
		})
		return rpctypes.ErrGRPCNoSpace
	})
	w.moved("force unlock", w.do(r, action(r)))
}

// An etcd that runs out of space during a transaction commits it anyway, but answers that it did not.
func TestForceUnlockAppliedByAFullEtcd(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(w world, line *wire){
		"and nobody took it since":  func(world, *wire) {},
		"and another took it since": func(w world, _ *wire) { w.hold("a", uuid(2)) },
		"and nobody could look again": func(w world, line *wire) {
			line.once(func(func() error) error { return errLost })
		},
	} {
		t.Run(name, func(t *testing.T) {
			line, w := wired(t)
			r := w.hold("a", uuid(1))
			line.fill(func() { then(w, line) })
			proctest.Must(t, w.do(r, action(r)))
			ending, err := w.ReadEnding(t.Context(), uuid(1))
			if err != nil || ending == nil || w.record("a").UUID == uuid(1) {
				t.Errorf("ending %+v, %v; the lock is held by %q", ending, err, w.record("a").UUID)
			}
		})
	}
}
