package etcdmemory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// side is one of the two etcds that get the same requests.
type side struct {
	*clientv3.Client
	leases []clientv3.LeaseID
}

// said is an answer without lease ids, which differ between the two etcds.
func (s *side) said(m proto.Message) string {
	text := blanks.ReplaceAllString(prototext.MarshalOptions{}.Format(m), " ") // their number is random
	return leases.ReplaceAllStringFunc(text, func(lease string) string {
		id, _ := strconv.ParseInt(strings.TrimPrefix(lease, "lease:"), 10, 64)
		return fmt.Sprint("lease:#", slices.Index(s.leases, clientv3.LeaseID(id)))
	})
}

var (
	blanks = regexp.MustCompile(` +`)
	leases = regexp.MustCompile(`lease:\d+`)
)

// dice makes requests. Where both etcds are to get the same, both get dice with the same seed.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string { return of[d.IntN(len(of))] }

func (d dice) key() string { return d.one("a", "b", "b/1", "b/2", "c", "c\x00", "d") }

func (d dice) width() []clientv3.OpOption {
	switch d.IntN(6) {
	case 0:
		return []clientv3.OpOption{clientv3.WithPrefix()}
	case 1:
		return []clientv3.OpOption{clientv3.WithRange(d.key())}
	case 2:
		return []clientv3.OpOption{clientv3.WithFromKey()}
	}
	return nil
}

func (d dice) number() int64 { return int64(d.IntN(30)) }

func (d dice) compare(s *side) clientv3.Cmp {
	key, result := d.key(), d.one("=", "!=", "<", ">")
	var c clientv3.Cmp
	switch d.IntN(5) {
	case 0:
		c = clientv3.Compare(clientv3.Value(key), result, d.one("x", "y", ""))
	case 1:
		c = clientv3.Compare(clientv3.CreateRevision(key), result, d.number())
	case 2:
		c = clientv3.Compare(clientv3.ModRevision(key), result, d.number())
	case 3:
		c = clientv3.Compare(clientv3.Version(key), result, d.number()%4)
	default:
		c = clientv3.Compare(clientv3.LeaseValue(key), result, d.lease(s))
	}
	switch d.IntN(4) {
	case 0:
		return c.WithPrefix()
	case 1:
		return c.WithRange(d.key())
	}
	return c
}

// lease is one that may have ended, or none.
func (d dice) lease(s *side) clientv3.LeaseID {
	if n := d.IntN(3 + len(s.leases)); n < len(s.leases) {
		return s.leases[n]
	}
	return 0
}

func (d dice) op(s *side, depth int) clientv3.Op {
	switch n := d.IntN(10); {
	case n < 4:
		return d.put(s)
	case n < 5:
		opts := d.width()
		if d.IntN(2) == 0 {
			opts = append(opts, clientv3.WithPrevKV())
		}
		return clientv3.OpDelete(d.key(), opts...)
	case n < 7 && depth > 0:
		return clientv3.OpTxn(d.txn(s, depth-1))
	}
	return d.get()
}

func (d dice) put(s *side) clientv3.Op {
	key, value := d.key(), d.one("x", "y", "z")
	if d.IntN(4) == 0 {
		return clientv3.OpPut(key, value, clientv3.WithPrevKV())
	}
	return clientv3.OpPut(key, value, clientv3.WithLease(d.lease(s)))
}

func (d dice) get() clientv3.Op {
	opts := d.width()
	for range d.IntN(3) {
		opts = append(opts, []clientv3.OpOption{
			clientv3.WithLimit(d.number() % 4), clientv3.WithKeysOnly(), clientv3.WithCountOnly(),
			clientv3.WithRev(d.number()),
			clientv3.WithMinModRev(d.number()), clientv3.WithMaxModRev(d.number()),
			clientv3.WithMinCreateRev(d.number()), clientv3.WithMaxCreateRev(d.number()),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend),
		}[d.IntN(10)])
	}
	return clientv3.OpGet(d.key(), opts...)
}

func (d dice) txn(s *side, depth int) (cmps []clientv3.Cmp, thenOps, elseOps []clientv3.Op) {
	for range d.IntN(3) {
		cmps = append(cmps, d.compare(s))
	}
	for range 1 + d.IntN(3) {
		thenOps = append(thenOps, d.op(s, depth))
		elseOps = append(elseOps, d.op(s, depth))
	}
	return cmps, thenOps, elseOps
}

// step makes one random request and returns its answer.
func (d dice) step(ctx context.Context, s *side) string {
	switch n := d.IntN(20); {
	case n == 0:
		r, err := s.Grant(ctx, 600)
		if err != nil {
			return err.Error()
		}
		s.leases = append(s.leases, r.ID)
		return fmt.Sprint("granted ", r.TTL, r.GetRevision())
	case n == 1 && len(s.leases) > 0:
		r, err := s.Revoke(ctx, s.leases[d.IntN(len(s.leases))])
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint("revoked ", r.Header.GetRevision())
	}
	cmps, thenOps, elseOps := d.txn(s, 2)
	r, err := s.Txn(ctx).If(cmps...).Then(thenOps...).Else(elseOps...).Commit()
	if err != nil {
		return err.Error()
	}
	r.Header.ClusterId = 0
	r.Header.MemberId = 0
	r.Header.RaftTerm = 0
	return s.said((*pb.TxnResponse)(r))
}

// watches opens one of each kind.
func (s *side) watches(ctx context.Context) []clientv3.WatchChan {
	return []clientv3.WatchChan{
		s.Watch(ctx, "b", clientv3.WithPrefix()),
		s.Watch(ctx, "a", clientv3.WithFromKey(), clientv3.WithPrevKV(), clientv3.WithRev(2)),
		s.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithRev(5)),
		s.Watch(ctx, "c", clientv3.WithRange("e"), clientv3.WithFilterDelete(), clientv3.WithRev(9),
			clientv3.WithCreatedNotify()),
	}
}

// story returns the events of a watch up to the key that is put and deleted last.
func (s *side) story(t *testing.T, watch clientv3.WatchChan) (lines []string) {
	for r := range watch {
		if r.Created {
			lines = append(lines, "created")
		}
		for _, e := range r.Events {
			if string(e.Kv.Key) == "d-last" || string(e.Kv.Key) == "b-last" {
				return lines
			}
			lines = append(lines, s.said(e))
		}
	}
	t.Error("the watch ended")
	return lines
}

func (s *side) end(t *testing.T) {
	for _, key := range []string{"b-last", "d-last"} {
		etcdtest.Put(t, s.Client, key, "")
		if _, err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInMemoryEtcdBehavesLikeARealOne(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			memory := &side{Client: connect(t, etcdmemory.New()).Client()}
			real := &side{Client: etcdtest.Start(t).Client(t)}
			var errors, changes int
			for n := range uint64(150) {
				want := dice{rand.New(rand.NewPCG(seed, n))}.step(ctx, real)
				got := dice{rand.New(rand.NewPCG(seed, n))}.step(ctx, memory)
				if got != want {
					t.Fatalf("step %d: in memory\n%s\nreal\n%s", n, got, want)
				}
				if strings.HasPrefix(want, "etcdserver: ") {
					errors++
				} else {
					changes++
				}
			}
			if errors < 10 || changes < 50 {
				t.Errorf("%d errors and %d answers prove little", errors, changes)
			}
			told := memory.watches(ctx)
			wanted := real.watches(ctx)
			for n := range uint64(50) {
				dice{rand.New(rand.NewPCG(n, seed))}.step(ctx, real)
				dice{rand.New(rand.NewPCG(n, seed))}.step(ctx, memory)
			}
			memory.end(t)
			real.end(t)
			for i := range told {
				got := memory.story(t, told[i])
				want := real.story(t, wanted[i])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("watch %d (-real +in memory):\n%s", i, diff)
				}
			}
		})
	}
}

func connect(t *testing.T, s *etcdmemory.Server) *etcdmemory.Link {
	l := s.Connect()
	t.Cleanup(func() { l.Client().Close() })
	return l
}
