package etcdretry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const roundTrip = 5 * time.Millisecond

// distant is an etcd whose answers take a [roundTrip]. It notes which keys each request is about, and when it came.
type distant struct {
	clientv3.KV
	refuse  func(keys []string) error // before anything happens; may be nil
	answers []error                   // in place of the first answers

	mu       sync.Mutex
	requests []string // keys, separated by spaces
	came     []time.Time
	ended    int // by their contexts
	answered atomic.Int64
}

func (d *distant) Txn(ctx context.Context) clientv3.Txn {
	return &distantTxn{Txn: d.KV.Txn(ctx), d: d, ctx: ctx}
}

type distantTxn struct {
	clientv3.Txn
	d    *distant
	ctx  context.Context
	keys []string
}

func (t *distantTxn) If(c ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(c...); return t }

func (t *distantTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		if op.IsTxn() {
			_, then, _ := op.Txn()
			op = then[0]
		}
		t.keys = append(t.keys, string(op.KeyBytes()))
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *distantTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

func (t *distantTxn) Commit() (*clientv3.TxnResponse, error) {
	d := t.d
	slices.Sort(t.keys)
	d.mu.Lock()
	d.requests = append(d.requests, strings.Join(t.keys, " "))
	d.came = append(d.came, time.Now())
	var instead error
	if len(d.answers) > 0 {
		instead, d.answers = d.answers[0], d.answers[1:]
	}
	header, _ := metadata.FromOutgoingContext(t.ctx)
	if instead == rpctypes.ErrNoLeader && header[rpctypes.MetadataRequireLeaderKey] == nil {
		instead = nil // the member waits for a leader
	}
	d.mu.Unlock()
	select {
	case <-time.After(roundTrip):
	case <-t.ctx.Done():
		d.mu.Lock()
		d.ended++
		d.mu.Unlock()
		return nil, t.ctx.Err()
	}
	if d.refuse != nil {
		if err := d.refuse(t.keys); err != nil {
			return nil, err
		}
	}
	r, err := t.Txn.Commit()
	if instead != nil {
		return nil, instead
	}
	return r, err
}

// forget forgets the requests so far, and returns their number.
func (d *distant) forget() int {
	n := len(d.requests)
	d.requests, d.came = nil, nil
	return n
}

// atDistance runs a test with an etcd at a distance.
func atDistance(t *testing.T, test func(t *testing.T, d *distant, c *etcdretry.Client)) {
	inMemory(t, func(t *testing.T, link *etcdmemory.Link) {
		etcd := link.Client()
		d := &distant{KV: etcd.KV}
		etcd.KV = d
		test(t, d, etcdretry.New(etcd, etcdretry.Options{AttemptTimeout: 2 * time.Second,
			OnAnswer: func() { d.answered.Add(1) }}))
	})
}

// only is a transaction about one record, which is one key here.
func only(txn locktxn.Txn) locktxn.Txn {
	txn.OnlyRecord = string(txn.Then[0].KeyBytes())
	return txn
}

func remove(key string) locktxn.Txn { return locktxn.Txn{Then: []clientv3.Op{clientv3.OpDelete(key)}} }

// send sends transactions, one after the other, without waiting for the answers, which wait returns.
func send(c *etcdretry.Client, ctx func(i int) context.Context,
	txns ...locktxn.Txn) (wait func() ([]etcdretry.Response, []error)) {
	answers := make([]etcdretry.Response, len(txns))
	errs := make([]error, len(txns))
	var all sync.WaitGroup
	for i, txn := range txns {
		all.Go(func() { answers[i], errs[i] = c.Send(ctx(i), txn) })
		synctest.Wait()
	}
	return func() ([]etcdretry.Response, []error) {
		all.Wait()
		return answers, errs
	}
}

// sendEach sends transactions like this until all are answered.
func sendEach(ctx context.Context, c *etcdretry.Client, txns ...locktxn.Txn) ([]etcdretry.Response, []error) {
	return send(c, func(int) context.Context { return ctx }, txns...)()
}

func creating(keys ...string) []locktxn.Txn {
	txns := make([]locktxn.Txn, len(keys))
	for i, k := range keys {
		txns[i] = only(create(k))
	}
	return txns
}

func TestTransactionsOfABusyClientShareRequests(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		sendEach(t.Context(), c, create("g"))
		d.forget()
		txns := append(creating(strings.Split("abcdefghijkl", "")...), create("z"))
		began := time.Now()
		answers, errs := sendEach(t.Context(), c, txns...)
		want := []string{"a", "b c d e f g h i", "z", "j k l"}
		if !slices.Equal(d.requests, want) {
			t.Errorf("requests: %q, want %q", d.requests, want)
		}
		for i, txn := range txns {
			// It was there before. Its neighbours in the request are not concerned.
			taken := txn.OnlyRecord == "g"
			if errs[i] != nil || answers[i].Succeeded == taken || answers[i].Indeterminate ||
				answers[i].Header.Revision == 0 {
				t.Errorf("%v: %+v, %v", txn.OnlyRecord, answers[i], errs[i])
			}
			if taken && string(answers[i].Keys(0).Kvs[0].Value) != "x" {
				t.Errorf("it read %+v", answers[i].Keys(0))
			}
		}
		if took := time.Since(began); took > time.Millisecond+roundTrip {
			t.Errorf("they took %v", took)
		}
	})
}

func TestCompletedRequestSendsTheWaitingOnes(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		began := time.Now()
		var all sync.WaitGroup
		for i, txn := range creating("a", "b", "c") {
			all.Go(func() {
				if i > 0 {
					time.Sleep(roundTrip - time.Millisecond/2)
				}
				if _, err := c.Send(t.Context(), txn); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(d.requests) != 2 || d.requests[1] != "b c" || d.came[1].Sub(began) != roundTrip {
			t.Errorf("requests: %q at %v", d.requests, d.came)
		}
	})
}

func TestSomeTransactionsNeverShareARequest(t *testing.T) {
	large := create("large")
	large.Then[0] = clientv3.OpPut("large", strings.Repeat("x", locktxn.MaxBytes/8))
	for _, c := range []struct {
		name string
		txns []locktxn.Txn
		want []string
	}{
		{"about the same record", creating("same", "same", "other"), []string{"same", "other same"}},
		{"with a put and without one", []locktxn.Txn{only(remove("a")), only(create("b")), only(remove("c"))},
			[]string{"a c", "b"}},
		{"of which one is large", []locktxn.Txn{only(create("a")), only(large), only(create("b"))},
			[]string{"large", "a b"}},
		{"about several records", []locktxn.Txn{create("a"), create("b")}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			atDistance(t, func(t *testing.T, d *distant, client *etcdretry.Client) {
				busy := append(creating("1"), only(remove("2")))
				_, errs := sendEach(t.Context(), client, append(busy, c.txns...)...)
				if got := d.requests[len(busy):]; !sameRequests(got, c.want) {
					t.Errorf("requests: %q, want %q", got, c.want)
				}
				proctest.Must(t, errors.Join(errs...))
			})
		})
	}
}

// sameRequests compares without order.
func sameRequests(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestRefusalOfOneDoesNotAffectOthers(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		d.refuse = func(keys []string) error {
			if slices.Contains(keys, "secret") {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}
		txns := creating("a", "b", "c", "secret", "e", "f")
		check := func() {
			t.Helper()
			_, errs := sendEach(t.Context(), c, txns...)
			for i, err := range errs {
				if forbidden := txns[i].OnlyRecord == "secret"; forbidden != errors.Is(err,
					rpctypes.ErrPermissionDenied) ||
					!forbidden && err != nil {
					t.Errorf("%s: %v", txns[i].OnlyRecord, err)
				}
			}
		}
		check()
		if want := []string{"a", "b c e f secret", "b", "c", "e", "f", "secret"}; !sameRequests(d.requests, want) {
			t.Errorf("requests: %q", d.requests)
		}
		d.forget()
		check()
		if n := d.forget(); n != len(txns) {
			t.Errorf("%d requests soon after a refusal", n)
		}
		time.Sleep(10 * time.Second)
		check()
		if d.requests[1] != "b c e f secret" {
			t.Errorf("requests long after a refusal: %q", d.requests)
		}
	})
}

func TestLostAnswerOfASharedRequestIsIndeterminateForAll(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		d.answers = []error{context.DeadlineExceeded, context.DeadlineExceeded}
		answers, errs := sendEach(t.Context(), c, creating("a", "b", "c", "d", "e", "f")...)
		for i, a := range answers {
			if errs[i] != nil || !a.Indeterminate || a.Succeeded || string(a.Keys(0).Kvs[0].Value) != "x" {
				t.Errorf("%d: %+v, %v", i, a, errs[i])
			}
		}
	})
}

func TestSharedRequestLastsWhileAnyCallerWaits(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		ctx, giveUp := context.WithCancel(t.Context())
		gone := func(i int) bool { return i >= 1 && i <= 7 }
		wait := send(c, func(i int) context.Context {
			if gone(i) {
				return ctx
			}
			return t.Context()
		}, creating(strings.Split("abcdefghi", "")...)...)
		giveUp()
		synctest.Wait()
		if d.ended != 0 {
			t.Error("the request ended, although one caller still waits")
		}
		_, errs := wait()
		for i, err := range errs {
			if gone(i) != errors.Is(err, context.Canceled) || !gone(i) && err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		ctx, giveUp = context.WithCancel(t.Context())
		wait = send(c, func(int) context.Context { return ctx }, creating(strings.Split("klmnopqrs", "")...)...)
		giveUp()
		wait()
		synctest.Wait()
		if d.ended != 2 {
			t.Errorf("%d requests ended with their callers, want 2", d.ended)
		}
	})
}

func TestRequestOfACallerThatGaveUpIsNotSent(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, c *etcdretry.Client) {
		ctx, giveUp := context.WithCancel(t.Context())
		wait := send(c, func(i int) context.Context {
			if i == 1 {
				return ctx
			}
			return t.Context()
		}, creating("a", "b", "c")...)
		giveUp()
		_, errs := wait()
		if errs[0] != nil || errs[1] == nil || errs[2] != nil || !slices.Equal(d.requests, []string{"a", "c"}) {
			t.Errorf("requests: %q, %v", d.requests, errs)
		}
		_, _ = sendEach(t.Context(), c, creating("e", "f", "g", "h")...)
		if d.requests[3] != "f g h" {
			t.Errorf("requests afterwards: %q", d.requests)
		}
	})
}
