package docs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// stranger is a client written from the listings of docs/protocol.md and docs/protocol/queue.md alone, with the literal
// keys of those pages. It shares no code with ours.
type stranger struct {
	etcd *clientv3.Client

	uuid   string           // U
	lease  clientv3.LeaseID // L
	ticket int64            // P
	before string           // B, empty for the first
	known  bool             // it is the first, or knows B
	token  int64            // T
}

const (
	recordK = "/mutexes/invoices%2F2026-08/"
	queueQ  = "/mutexes/.queue/invoices%2F2026-08/"
)

func created(key, is string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), is, revision)
}

func (s *stranger) tombstone() string { return "/mutexes/.cancelled/" + s.uuid }

func (s *stranger) record() []clientv3.Op {
	now := time.Now().Unix()
	return []clientv3.Op{
		clientv3.OpPut(recordK+"uuid", s.uuid),
		clientv3.OpPut(recordK+"alert_at", fmt.Sprint(now+300)),
		clientv3.OpPut(recordK+"auto_unlock_at", fmt.Sprint(now+900)),
		clientv3.OpPut(recordK+"metadata", fmt.Sprintf(`{"owner":"stranger","locked_at":"%d"}`, now)),
	}
}

func (s *stranger) leave() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(queueQ + s.uuid),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(queueQ+".tail"), "=", s.uuid)},
			[]clientv3.Op{clientv3.OpDelete(queueQ + ".tail")}, nil),
	}
}

// try is acquire with the compare of the ticket.
func (s *stranger) try(ctx context.Context) (held bool, err error) {
	s.uuid = uuid.NewString()
	r, err := s.etcd.Txn(ctx).
		If(created(recordK+"uuid", "=", 0), created(queueQ+".tail", "=", 0), created(s.tombstone(), "=", 0),
			created(queueQ+s.uuid, "=", 0)).
		Then(s.record()...).
		Else(clientv3.OpGet(recordK, clientv3.WithPrefix())).Commit()
	if err != nil || !r.Succeeded {
		return false, err
	}
	s.token = r.Header.Revision
	return true, nil
}

func (s *stranger) join(ctx context.Context) error {
	lease, err := s.etcd.Grant(ctx, 10)
	if err != nil {
		return err
	}
	s.lease = lease.ID
	ticket := fmt.Sprintf(`{"uuid":"%s","owner":"stranger","since":"%d","timeout_at":null}`, s.uuid, time.Now().Unix())
	r, err := s.etcd.Txn(ctx).
		If(created(queueQ+s.uuid, "=", 0), created(s.tombstone(), "=", 0)).
		Then(clientv3.OpPut(queueQ+s.uuid, ticket, clientv3.WithLease(s.lease)),
			clientv3.OpPut(queueQ+".tail", s.uuid, clientv3.WithLease(s.lease), clientv3.WithPrevKV())).Commit()
	if err != nil || !r.Succeeded {
		return fmt.Errorf("join: %+v, %w", r, err)
	}
	s.ticket = r.Header.Revision
	if tail := r.Responses[1].GetResponsePut().PrevKv; tail != nil {
		s.before, s.known = string(tail.Value), true
	}
	return nil
}

// await looks, watches one key and looks again, until its turn has come.
func (s *stranger) await(ctx context.Context) error {
	for {
		watched, err := s.ahead(ctx, "")
		if err != nil {
			return err
		}
		watch, stop := context.WithCancel(ctx)
		events := s.etcd.Watch(watch, watched, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
		<-events // open: what happens from here on is not missed
		again, err := s.ahead(ctx, watched)
		if err == nil && again == watched {
			<-events
		}
		stop()
		if err != nil {
			return err
		}
		if again == "" {
			held, err := s.turn(ctx)
			if held || err != nil {
				return err
			}
		}
	}
}

// ahead is the key to watch: the ticket before this one, or the uuid key; empty when it is gone and the turn has come.
// That may only be said once the watch of the uuid key is open.
func (s *stranger) ahead(ctx context.Context, watched string) (string, error) {
	reads := []clientv3.Op{clientv3.OpGet(queueQ + s.uuid), clientv3.OpGet(recordK + "uuid")}
	switch {
	case !s.known:
		reads = append(reads, clientv3.OpGet(queueQ+"/", clientv3.WithRange("/mutexes/.queue/invoices%2F2026-080"),
			clientv3.WithLimit(1), clientv3.WithMaxCreateRev(s.ticket-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)))
	case s.before != "":
		reads = append(reads, clientv3.OpGet(queueQ+s.before))
	}
	r, err := s.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return "", err
	}
	var found []string // own ticket, uuid, and the ticket ahead, as far as they are there
	for _, one := range r.Responses {
		found = append(found, "")
		for _, kv := range one.GetResponseRange().Kvs {
			found[len(found)-1] = string(kv.Key)
		}
	}
	holder := r.Responses[1].GetResponseRange().Kvs
	switch {
	case found[0] == "":
		return "", fmt.Errorf("the position of %s is lost", s.uuid)
	case len(found) > 2 && found[2] != "":
		s.before, s.known = strings.TrimPrefix(found[2], queueQ), true
		return found[2], nil
	case s.known && s.before != "" && (len(holder) == 0 || string(holder[0].Value) != s.before):
		s.known = false
		return s.ahead(ctx, watched)
	}
	s.before, s.known = "", true
	if found[1] == "" && watched == recordK+"uuid" {
		return "", nil
	}
	return recordK + "uuid", nil
}

func (s *stranger) turn(ctx context.Context) (held bool, err error) {
	r, err := s.etcd.Txn(ctx).
		If(created(recordK+"uuid", "=", 0), created(s.tombstone(), "=", 0), created(queueQ+s.uuid, "=", s.ticket)).
		Then(append(s.record(), s.leave()...)...).Commit()
	if err != nil || !r.Succeeded {
		return false, err
	}
	s.token = r.Header.Revision
	_, err = s.etcd.Revoke(ctx, s.lease)
	return true, err
}

func (s *stranger) release(ctx context.Context) error {
	r, err := s.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(recordK+"uuid"), "=", s.uuid), created(recordK+"uuid", "=", s.token)).
		Then(append(s.leave(), clientv3.OpDelete(recordK, clientv3.WithPrefix()))...).
		Else(s.leave()...).Commit()
	if err == nil && !r.Succeeded {
		err = fmt.Errorf("%s was lost", s.uuid)
	}
	return err
}

// The queue of the page and the faster one of the Go client are one queue: first come, first served.
func TestTheQueueOfThePageAndOursAreOne(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	locks, err := mutex.New(server.Client(t), mutex.Options{Owner: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	ctx := t.Context()

	first := &stranger{etcd: etcd}
	if held, err := first.try(ctx); !held || err != nil {
		t.Fatalf("a free lock was refused: %v", err)
	}
	if _, err := locks.TryLock(ctx, "invoices/2026-08"); err == nil {
		t.Fatal("our client took a lock that is held")
	}
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		order  []int
		tokens = []int64{first.token}
	)
	served := func(n int, token int64) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, n)
		tokens = append(tokens, token)
	}
	const waiters = 8
	for n := range waiters {
		if n%2 == 0 {
			s := &stranger{etcd: etcd}
			if held, err := s.try(ctx); held || err != nil {
				t.Fatalf("a stranger took a lock that is held: %v", err)
			}
			if err := s.join(ctx); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if err := s.await(ctx); err != nil {
					t.Error(err)
					return
				}
				served(n, s.token)
				if err := s.release(ctx); err != nil {
					t.Error(err)
				}
			})
			continue
		}
		all.Go(func() {
			l, err := locks.Lock(ctx, "invoices/2026-08")
			if err != nil {
				t.Error(err)
				return
			}
			served(n, l.Token())
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
		for { // until it queues
			r, err := etcd.Get(ctx, queueQ+"/", clientv3.WithRange("/mutexes/.queue/invoices%2F2026-080"),
				clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			if r.Count == int64(n+1) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := first.release(ctx); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if !slices.IsSorted(order) || len(order) != waiters {
		t.Errorf("served in the order %v", order)
	}
	if !slices.IsSorted(tokens) {
		t.Errorf("tokens %v do not grow", tokens)
	}
	left, err := etcd.Get(ctx, "/mutexes/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || left.Count != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
