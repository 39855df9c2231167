package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func TestTaskOfADeadWorkerIsCapturedAgainAfterItsAutoUnlock(t *testing.T) {
	server := etcdtest.Shared(t)
	etcd := server.Client(t)
	s := set(t, etcd, jobs.TaskOptions{MaxAttempts: 2})
	add(t, s, "1", "the data")
	dies := set(t, server.Client(t), jobs.TaskOptions{Worker: "the one that dies"})
	if captured := capture(t, dies, 1); len(captured) != 1 {
		t.Fatalf("%d captured", len(captured))
	}

	if captured := capture(t, s, 1); len(captured) != 0 {
		t.Fatal("captured before the auto-unlock")
	}
	autoUnlock(t, etcd, "invoices/1")
	if now := get(t, s, "1"); !now.Stuck || now.By != "the one that dies" {
		t.Errorf("after the auto-unlock: %+v", now)
	}
	captured := capture(t, s, 1)
	if len(captured) != 1 || captured[0].Attempt() != 2 || captured[0].From() != "new" ||
		captured[0].Data() != "the data" {
		t.Fatalf("captured %+v", captured)
	}
	if err := captured[0].Finish("done", ""); err != nil {
		t.Error(err)
	}
}

func TestLateWorkerIsRefused(t *testing.T) {
	server := etcdtest.Shared(t)
	etcd := server.Client(t)
	one := set(t, server.Client(t), jobs.TaskOptions{})
	two := set(t, server.Client(t), jobs.TaskOptions{})
	add(t, one, "1", "")
	late := capture(t, one, 1)[0]
	if _, err := etcd.Put(t.Context(), "/fenced", "0"); err != nil {
		t.Fatal(err)
	}
	autoUnlock(t, etcd, "invoices/1") // while it stands still
	for _, step := range []string{"stuck", "captured again", "done by the other"} {
		if step == "captured again" {
			next := capture(t, two, 1)[0]
			if next.Token() <= late.Token() {
				t.Errorf("token %d after %d", next.Token(), late.Token())
			}
			defer func() {
				if err := next.Finish("done", ""); err != nil {
					t.Errorf("the other worker: %v", err)
				}
			}()
		}
		before := get(t, one, "1")
		for what, err := range map[string]error{"save": late.Save(t.Context(), "late"),
			"finish": late.Finish("failed", "late"), "release": late.Release(), "remove": late.FinishAndRemove()} {
			lost, isLost := errors.AsType[*mutex.LostError](err)
			if !isLost || lost.Ending == nil || lost.Ending.By != "unlocker-1" {
				t.Errorf("%s while it is %s: %v", what, step, err)
			}
		}
		if now := get(t, one, "1"); now != before {
			t.Errorf("while it is %s, the late worker wrote %+v", step, now)
		}
	}
}

// answers stands between a client and etcd's transactions, and loses some of the answers.
type answers struct {
	clientv3.KV
	n    atomic.Int64
	lose func(n int64) bool
}

func (a *answers) Txn(ctx context.Context) clientv3.Txn { return &lossy{Txn: a.KV.Txn(ctx), a: a} }

type lossy struct {
	clientv3.Txn
	a *answers
}

func (l *lossy) If(c ...clientv3.Cmp) clientv3.Txn  { l.Txn = l.Txn.If(c...); return l }
func (l *lossy) Then(o ...clientv3.Op) clientv3.Txn { l.Txn = l.Txn.Then(o...); return l }
func (l *lossy) Else(o ...clientv3.Op) clientv3.Txn { l.Txn = l.Txn.Else(o...); return l }

func (l *lossy) Commit() (*clientv3.TxnResponse, error) {
	n := l.a.n.Add(1)
	r, err := l.Txn.Commit()
	if l.a.lose(n) {
		return nil, context.DeadlineExceeded
	}
	return r, err
}

func TestNothingIsDoneTwiceWhenAnswersAreLost(t *testing.T) {
	for name, every := range map[string]int64{"every second answer": 2, "every third": 3} {
		t.Run(name, func(t *testing.T) {
			server := etcdtest.Shared(t)
			etcd := server.Client(t)
			lost := func(n int64) bool { return n%every != 0 }
			if every == 3 {
				lost = func(n int64) bool { return n%every == 0 }
			}
			etcd.KV = &answers{KV: etcd.KV, lose: lost}
			s := set(t, etcd, jobs.TaskOptions{})
			for i := range 5 {
				add(t, s, fmt.Sprint(i), "")
			}
			captured := capture(t, s, 5)
			if len(captured) != 5 {
				t.Fatalf("%d captured", len(captured))
			}
			for _, task := range captured {
				if task.Attempt() != 1 {
					t.Errorf("%s: attempt %d", task.Name(), task.Attempt())
				}
				for i := range 3 {
					if err := task.Save(t.Context(), fmt.Sprint("part ", i)); err != nil {
						t.Errorf("save: %v", err)
					}
				}
				if err := task.Finish("done", ""); err != nil {
					t.Errorf("finish: %v", err)
				}
			}
			for _, now := range list(t, s) {
				if now.State != "done" || now.Data != "part 2" || now.Running {
					t.Errorf("%+v", now)
				}
			}
		})
	}
}

// An add that arrives late must not bring back a task that was done meanwhile.
func TestLateAddIsRefused(t *testing.T) {
	etcd := etcdtest.Shared(t).Client(t)
	kv := etcd.KV
	s := set(t, etcd, jobs.TaskOptions{})
	var late clientv3.Txn
	etcd.KV = &keeping{KV: kv, keep: func(txn clientv3.Txn) bool {
		first := late == nil
		if first {
			late = txn
		}
		return first
	}}
	add(t, s, "1", "")
	if err := capture(t, s, 1)[0].FinishAndRemove(); err != nil {
		t.Fatal(err)
	}
	if r, err := late.Commit(); err != nil || r.Succeeded {
		t.Errorf("the late add: %v, %v", r, err)
	}
	if all := list(t, s); len(all) > 0 {
		t.Errorf("it is to be done again: %+v", all)
	}
}

// When a user's token expired while idle, etcd's client fails once and gets a new one.
func TestTokenThatRanOutIsNoError(t *testing.T) {
	etcd := etcdtest.Shared(t).Client(t)
	refuses := &refusing{KV: etcd.KV}
	etcd.KV = refuses
	for _, refusal := range []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty,
		rpctypes.ErrTooManyRequests} {
		s := set(t, etcd, jobs.TaskOptions{})
		for about, call := range map[string]func() error{
			"add":     func() error { _, err := s.Add(t.Context(), refusal.Error(), ""); return err },
			"list":    func() error { _, err := s.List(t.Context()); return err },
			"capture": func() error { _, err := s.Capture(t.Context(), 1); return err },
		} {
			refuses.next.Store(&refusal)
			if err := call(); err != nil {
				t.Errorf("%s: %v", about, err)
			}
			if refuses.next.Swap(nil) != nil {
				t.Errorf("%s: %v was not met", about, refusal)
			}
		}
	}
}

// refusing refuses the next transaction.
type refusing struct {
	clientv3.KV
	next atomic.Pointer[error]
}

func (r *refusing) Txn(ctx context.Context) clientv3.Txn {
	return &refused{Txn: r.KV.Txn(ctx), with: r.next.Swap(nil)}
}

type refused struct {
	clientv3.Txn
	with *error
}

func (r *refused) If(c ...clientv3.Cmp) clientv3.Txn  { r.Txn = r.Txn.If(c...); return r }
func (r *refused) Then(o ...clientv3.Op) clientv3.Txn { r.Txn = r.Txn.Then(o...); return r }
func (r *refused) Else(o ...clientv3.Op) clientv3.Txn { r.Txn = r.Txn.Else(o...); return r }

func (r *refused) Commit() (*clientv3.TxnResponse, error) {
	if r.with != nil {
		return nil, *r.with
	}
	return r.Txn.Commit()
}

// keeping holds transactions back.
type keeping struct {
	clientv3.KV
	keep func(clientv3.Txn) bool
}

func (k *keeping) Txn(ctx context.Context) clientv3.Txn {
	return &kept{Txn: k.KV.Txn(context.WithoutCancel(ctx)), k: k}
}

type kept struct {
	clientv3.Txn
	k *keeping
}

func (l *kept) If(c ...clientv3.Cmp) clientv3.Txn  { l.Txn = l.Txn.If(c...); return l }
func (l *kept) Then(o ...clientv3.Op) clientv3.Txn { l.Txn = l.Txn.Then(o...); return l }
func (l *kept) Else(o ...clientv3.Op) clientv3.Txn { l.Txn = l.Txn.Else(o...); return l }

func (l *kept) Commit() (*clientv3.TxnResponse, error) {
	if l.k.keep(l.Txn) {
		return nil, context.DeadlineExceeded
	}
	return l.Txn.Commit()
}

// Readers of the locks must not report tasks as foreign keys.
func TestKeysOfTasksAreKnown(t *testing.T) {
	etcd := etcdtest.Shared(t).Client(t)
	s := set(t, etcd, jobs.TaskOptions{})
	add(t, s, "a/b%c", "")
	r, err := etcd.Get(t.Context(), mutex.DefaultPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		if key := layout(t).Parse(string(kv.Key)); key.Kind != protocol.KindTask || key.Lock != "invoices/a/b%c" ||
			key.ID != "a/b%c" {
			t.Errorf("%s is %+v", kv.Key, key)
		}
	}
}
