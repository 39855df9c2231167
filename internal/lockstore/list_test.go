package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// olderThan37 is a wire to a server that cannot stream lists.
func olderThan37() *wire {
	return &wire{any: func(method string) error {
		if method == "RangeStream" {
			return status.Error(codes.Unimplemented, "unknown method RangeStream for service etcdserverpb.KV")
		}
		return nil
	}}
}

func TestList(t *testing.T) {
	onBothServers(t, func(t *testing.T, w world) {
		w.hold("a", uuid(1))
		w.hold("a/b", uuid(2))
		w.hold(".x", uuid(3))
		for _, key := range []string{
			w.l.Ticket("a", "1"), w.l.Unlocker("u1"), w.l.Prefix() + "stray", w.l.Prefix() + ".other/area",
			w.l.Record("a") + "b/uuid", w.l.Prefix() + "~~/uuid",
			w.l.History(uuid(9)), w.l.Audit(at, "1"), w.l.Cancelled(uuid(8)), w.l.Period("a"),
			w.l.Task("invoices", "a/b"), "/mutexes", "/mutexes0", "/other/uuid",
		} {
			w.put(key, "{}")
		}
		var got []string
		revision, err := w.ListKeys(t.Context(), func(kv protocol.KV) {
			got = append(got, kv.Key)
			if kv.ModRevision < kv.CreateRevision || kv.CreateRevision == 0 || len(kv.Value) == 0 {
				t.Errorf("%+v", kv)
			}
		})
		proctest.Must(t, err)
		want := slices.DeleteFunc(w.keys(w.l.Prefix()), func(key string) bool {
			return slices.ContainsFunc(w.l.UnlistedAreas(),
				func(area string) bool { return strings.HasPrefix(key, area) })
		})
		if !slices.Equal(got, want) || len(want) != 3*4+6 {
			t.Errorf("listed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if now := w.put("/other", ""); revision != now-1 {
			t.Errorf("revision %d, want %d", revision, now-1)
		}
	})
}

func TestListStaysInTheNamespaceOfItsClient(t *testing.T) {
	w := parallel(t)
	w.hold("a", uuid(1))
	keys := 0
	if _, err := w.ListKeys(t.Context(), func(protocol.KV) { keys++ }); err != nil || keys != 4 {
		t.Errorf("%d keys, want the 4 of the record: %v", keys, err)
	}
}

// Requests go to the members in turn, so several reads ask each of them. A read that waits for a leader is refused when
// there is one, and a learner refuses every read.
func TestReadsSkipARefusingMember(t *testing.T) {
	t.Parallel()
	var refusals []error
	line := &wire{any: func(string) (err error) {
		if len(refusals) > 0 {
			err, refusals = refusals[0], refusals[1:]
		}
		return err
	}}
	w := on(t, line.client(t, etcdtest.Start(t).Endpoint()))
	r := w.hold("a", uuid(1))
	without, changed := rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCLeaderChanged
	learner := rpctypes.ErrGRPCNotSupportedForLearner
	for _, some := range [][]error{{without}, {nil, without}, {learner, without, without, changed}} {
		refusals = slices.Clone(some)
		_, list := w.ListKeys(t.Context(), func(protocol.KV) {})
		refusals = append(refusals, some...)
		records := w.ListRecords(t.Context(), "", func(*metadata.Record) bool { return true })
		refusals = append(refusals, some...)
		_, look := w.ReadLock(t.Context(), "a")
		if err := errors.Join(list, records, look); err != nil || len(refusals) > 0 {
			t.Errorf("%v, not refused: %v", err, refusals)
		}
	}
	refusals = []error{without, changed}
	_, _, get := w.ReadRecord(t.Context(), "a")
	proctest.Must(t, get)
	refusals = []error{without, learner} // to grant a lease
	w.did(r, action(r))
}

// A client that may take locks may write a megabyte into each key.
func TestListFromAnOlderServerIsReadInBoundedPieces(t *testing.T) {
	t.Parallel()
	line := olderThan37()
	w := on(t, line.client(t, etcdtest.Start(t).Endpoint()))
	want := []string{}
	for i := range 30 {
		want = append(want, w.l.Field("a", fmt.Sprintf("x%02d", i)))
		w.put(want[i], strings.Repeat("x", 1<<20))
	}
	var got []string
	_, err := w.ListKeys(t.Context(), func(kv protocol.KV) { got = append(got, kv.Key) })
	proctest.Must(t, err)
	if !slices.Equal(got, want) || line.bytes.Load() > 16<<20 {
		t.Errorf("%d keys, the largest answer has %d bytes", len(got), line.bytes.Load())
	}
}

// While a list is read, both locks change in every transaction: a list that mixes revisions shows it.
func TestListHasOneRevision(t *testing.T) {
	onBothServers(t, func(t *testing.T, w world) {
		first := w.l.Prefix() + "!first/uuid"
		last := w.l.Prefix() + "~last/uuid"
		w.putFields("a", many("note%d", 50), strings.Repeat("x", 20_000)) // more than fits the window of a stream
		both := func(value string) {
			w.put(first, value)
			w.put(last, value)
		}
		both("start")
		began := w.put("/other", "")
		values := map[string]string{}
		keys := 0
		revision, err := w.ListKeys(t.Context(), func(kv protocol.KV) {
			if keys++; keys%10 == 1 {
				both(fmt.Sprint(keys))
			}
			values[kv.Key] = string(kv.Value)
		})
		if err != nil || revision != began {
			t.Fatalf("revision %d, want %d, %v", revision, began, err)
		}
		if values[first] != "start" || values[last] != "start" {
			t.Errorf("the list shows %q and %q, want the values of when it began", values[first], values[last])
		}
	})
}

func TestListOvertakenByCompactionFails(t *testing.T) {
	w := alone(t)
	each(t, 200, func(i int) { w.put(w.l.Field(fmt.Sprint(i), "note"), strings.Repeat("x", 20_000)) })
	keys := 0
	compact := func(protocol.KV) {
		if keys++; keys%5 == 0 {
			w.compact(w.put("/other", ""))
		}
	}
	if _, err := w.ListKeys(t.Context(), compact); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("error %v, want that it is compacted", err)
	}
	_, err := w.ListKeys(t.Context(), func(protocol.KV) {})
	proctest.Must(t, err)
}

func TestGetFindsTheHolderAmongThousandsOfForeignKeys(t *testing.T) {
	w := alone(t)
	w.hold("a/b", uuid(2))
	w.putFields("a", many("0/%d", 1500), "")
	if d, _, err := w.ReadRecord(t.Context(), "a"); err != nil || len(d.Fields) > 0 || d.Token != 0 {
		t.Errorf("free lock: %+v, %v", d, err)
	}
	r := w.hold("a", uuid(1))
	now := w.put("/other", "")
	d, revision, err := w.ReadRecord(t.Context(), "a")
	if err != nil || d.UUID != uuid(1) || d.Token != r.Token || d.Owner != "billing" || !d.HasForeignKeys() ||
		len(d.Fields) != 4 || !strings.HasPrefix(d.Backtrace, "main.main") || revision != now {
		t.Errorf("%v %+v at revision %d, want %d", err, d.Record, revision, now)
	}
}

func TestThousandsOfAttributesHideNoField(t *testing.T) {
	w := alone(t)
	w.hold("a", uuid(1))
	w.putFields("a", many("a%04d", 1100), "x") // before all fields in the order of keys
	w.putFields("a", unwritten(), "30")
	d, _, err := w.ReadRecord(t.Context(), "a")
	look, failed := w.ReadLock(t.Context(), "a")
	proctest.Must(t, errors.Join(err, failed))
	for _, name := range lockrecord.ReservedFields() {
		named := func(f metadata.Field) bool { return f.Name == name }
		alone := slices.ContainsFunc(d.Fields, named)
		withQueue := slices.ContainsFunc(look.Record.Fields, named)
		if !alone || !withQueue {
			t.Errorf("%s exists: %v if the record is read alone, %v if with its queue", name, alone, withQueue)
		}
	}
	on := protocol.ActionTarget{Hold: &d.Record, LockDelayAfter: d.EffectiveLockDelay(0)}
	_, err = w.Perform(t.Context(), protocol.VerbForceUnlock, on, action(&d.Record))
	proctest.Must(t, err)
	if d := w.delay("a"); d.Seconds != 30 {
		t.Errorf("the lock delay after the force unlock: %+v", d)
	}
}

// The log must name the silence as the cause, not our own cancellation.
func TestListFromAHangingMemberEnds(t *testing.T) {
	for _, c := range []struct {
		kv   silentKV
		took time.Duration
		ends bool
	}{
		{silentKV{older: true, hanging: 9}, 32 * time.Second, true},
		{silentKV{hanging: 9}, 32 * time.Second, true},
		{silentKV{older: true, hanging: 1}, 2 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := lockstore.New(&clientv3.Client{KV: &c.kv}, protocol.DefaultLayout())
			began := time.Now()
			_, err := store.ListKeys(t.Context(), func(protocol.KV) {})
			took := time.Since(began).Truncate(time.Second)
			if took != c.took || errors.Is(err, context.DeadlineExceeded) != c.ends ||
				strings.Contains(fmt.Sprint(err), "no data for 30s") != c.ends {
				t.Errorf("ended after %v with %v", took, err)
			}
		})
	}
}

// silentKV accepts requests and does not answer the first ones, and ends them as etcd's client does.
type silentKV struct {
	clientv3.KV
	older   bool // it cannot stream
	hanging int  // how many more requests are not answered
}

func (s *silentKV) GetStream(ctx context.Context, _ string, _ ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if s.older {
		return nil, status.Error(codes.Unimplemented, "unknown method RangeStream")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *silentKV) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.hanging--; s.hanging < 0 {
		return &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}
