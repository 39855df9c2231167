package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The answer to the acquisition is lost, and one of the locks is taken away before the client can ask again.
func TestGroupOfWhichOneIsTakenAwayBeforeTheAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		name, lock string
		then       []clientv3.Op // of the client that took it away
		forced     bool
	}{
		{"the first, by hand", "a", nil, false},
		{"the last, by hand", "b", nil, false},
		{"the last, by a person", "b", nil, true},
		{"the first, and another has it", "a", []clientv3.Op{clientv3.OpPut("/mutexes/a/uuid", "another")}, false},
		{"the last, and another has it", "b", []clientv3.Op{clientv3.OpPut("/mutexes/b/uuid", "another")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				f.loseAnswers.Store(1)
				lost := make(chan error)
				go func() {
					_, err := locks.TryLockAll(context.Background(), []string{"a", "b"})
					lost <- err
				}()
				synctest.Wait()
				taken := read(t, f.operator, c.lock)
				if c.forced {
					f.put(layout(t).History(taken.UUID),
						protocol.Marshal(metadata.NewEnding(&taken.Record, metadata.EndedForced, "ann", "stuck",
							time.Now())))
				}
				f.clearRecord(c.lock)
				f.do(c.then...)
				err := <-lost
				why, isLost := errors.AsType[*mutex.LostError](err)
				if !isLost || why.Lock != c.lock || why.UUID != taken.UUID || c.forced != (why.Ending != nil) {
					t.Errorf("the error is %v", err)
				}
				time.Sleep(time.Minute)
				other := map[string]string{"a": "b", "b": "a"}[c.lock]
				if held := read(t, f.operator, other); held.Token != 0 {
					t.Errorf("%s is still held", other)
				}
				if now := read(t, f.operator, c.lock).UUID; (now != "") != (c.then != nil) {
					t.Errorf("%s is held as %q", c.lock, now)
				}
			})
		})
	}
}

func TestSeveralLocksWhoseRequestIsSentTwiceAreTheSameHolds(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, _ *mutex.Client) {
		etcd := f.client()
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			r, err := txn.send(ctx)
			if txn.writes("/mutexes/a/uuid") {
				r, err = txn.send(ctx)
			}
			return r, err
		}}
		both, err := newClient(t, etcd).TryLockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if now := read(t, f.operator, "b"); both.Tokens()["b"] != now.Token {
			t.Errorf("it holds b with token %d, etcd has %d", both.Tokens()["b"], now.Token)
		}
		unlock(t, both)
	})
}
