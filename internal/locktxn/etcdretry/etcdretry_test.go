package etcdretry_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/testkit/etcdmemory"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var errClosed = errors.New("closed")

// create puts a key that must not be there.
func create(key string) locktxn.Txn {
	return locktxn.Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then: []clientv3.Op{clientv3.OpPut(key, "x")},
		Else: []clientv3.Op{clientv3.OpGet(key)},
	}
}

// inMemory runs a test with an etcd in memory, in a bubble in which time passes at once.
func inMemory(t *testing.T, test func(t *testing.T, link *etcdmemory.Link)) {
	synctest.Test(t, func(t *testing.T) {
		link := etcdmemory.New().Connect()
		defer link.Client().Close()
		test(t, link)
	})
}

func TestTransactionIsResentUntilItsOutcomeIsKnown(t *testing.T) {
	lost := context.DeadlineExceeded
	for _, c := range []struct {
		name          string
		errs          []error
		sent          int
		indeterminate bool
		err           error
	}{
		{"it is answered", nil, 1, false, nil},
		{"two answers are lost", []error{lost, lost}, 3, true, nil},
		{"a token ran out", []error{rpctypes.ErrInvalidAuthToken}, 2, false, nil},
		{"a login is older than the roles", []error{rpctypes.ErrAuthOldRevision}, 2, false, nil},
		{"a login is gone", []error{rpctypes.ErrUserEmpty}, 2, false, nil},
		{"every token is invalid", slices.Repeat([]error{rpctypes.ErrInvalidAuthToken}, 9), 6, false,
			rpctypes.ErrInvalidAuthToken},
		{"a learner and a member that is not capable are asked for long", slices.Repeat([]error{
			rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), rpctypes.ErrNotCapable}, 5), 11, false, nil},
		{"etcd is overloaded for long", slices.Repeat([]error{rpctypes.ErrTooManyRequests}, 9), 10, false, nil},
		{"it is refused", []error{rpctypes.ErrPermissionDenied}, 1, false, rpctypes.ErrPermissionDenied},
		{"it is refused after a lost answer", []error{lost, rpctypes.ErrPermissionDenied}, 2, true,
			rpctypes.ErrPermissionDenied},
		{"a member has no leader", []error{rpctypes.ErrNoLeader}, 2, false, nil},
		{"there is no leader for a moment", slices.Repeat([]error{rpctypes.ErrNoLeader}, 9), 4, false, nil},
		{"etcd is full", []error{rpctypes.ErrNoSpace}, 1, true, rpctypes.ErrNoSpace},
	} {
		t.Run(c.name, func(t *testing.T) {
			atDistance(t, func(t *testing.T, d *distant, retry *etcdretry.Client) {
				d.answers = c.errs
				a, err := retry.Send(t.Context(), create("/a"))
				if len(d.requests) != c.sent || a.Indeterminate != c.indeterminate || !errors.Is(err, c.err) {
					t.Errorf("sent %d times, indeterminate %v, error %v", len(d.requests), a.Indeterminate, err)
				}
				if c.err == nil && (d.answered.Load() != 1 || a.Succeeded != (c.sent == 1)) {
					t.Errorf("%d answers; the last sending succeeded: %v", d.answered.Load(), a.Succeeded)
				}
				if c.err == nil && c.sent > 1 && string(a.Keys(0).Kvs[0].Value) != "x" {
					t.Errorf("it read %+v", a.Keys(0))
				}
			})
		})
	}
}

func TestSendEndsAtItsDeadline(t *testing.T) {
	inMemory(t, func(t *testing.T, link *etcdmemory.Link) {
		silent := 0
		retry := etcdretry.New(link.Client(), etcdretry.Options{AttemptTimeout: 2 * time.Second, ClosedCause: errClosed,
			OnNoAnswer: func(time.Time, error) { silent++ }})
		link.Cut()
		began := time.Now()
		_, err := retry.SendFor(t.Context(), time.Minute, create("/a"))
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Minute || silent < 10 {
			t.Errorf("%v after %v and %d attempts", err, took, silent)
		}
		shift := errors.New("the shift is over")
		for cause, want := range map[error]string{shift: "context canceled: the shift is over", errClosed: "closed"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			if _, err = retry.Grant(ctx, time.Minute); !errors.Is(err, cause) ||
				!strings.HasSuffix(err.Error(), want) || errors.Is(err, context.Canceled) != (cause == shift) {
				t.Errorf("a lease: %v, want %s", err, want)
			}
		}
	})
}

func TestEndOfTheCallHidesNoFailure(t *testing.T) {
	atDistance(t, func(t *testing.T, d *distant, retry *etcdretry.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		d.refuse = func([]string) error {
			if len(d.requests) > 1 {
				cancel()
			}
			return cmp.Or(ctx.Err(), rpctypes.ErrTooManyRequests)
		}
		if _, err := retry.Send(ctx, create("/a")); !errors.Is(err, rpctypes.ErrTooManyRequests) {
			t.Errorf("got %v", err)
		}
	})
}

func TestMissingEtcdIsNamed(t *testing.T) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	proctest.Must(t, err)
	defer etcd.Close()
	_, err = etcdretry.New(etcd, etcdretry.Options{}).SendFor(t.Context(), time.Millisecond, create("/a"))
	if want := "there is no connection to etcd at 127.0.0.1:1: context deadline exceeded"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFollowLooksAtStartOnEventsAndPeriodically(t *testing.T) {
	inMemory(t, func(t *testing.T, link *etcdmemory.Link) {
		etcd := link.Client()
		retry := etcdretry.New(etcd, etcdretry.Options{AttemptTimeout: 2 * time.Second})
		looks := 0
		events := 0
		began := time.Now()
		retry.Follow(t.Context(), 10*time.Second, func(seen []*clientv3.Event) bool {
			looks++
			events += len(seen)
			if looks == 1 {
				if _, err := etcd.Put(t.Context(), "/a/2", "x"); err != nil {
					t.Error(err)
				}
			}
			return looks == 3
		}, etcdretry.WatchTarget{Key: "/b"},
			etcdretry.WatchTarget{Key: "/a/", Options: []clientv3.OpOption{clientv3.WithPrefix()}})
		if took := time.Since(began); events != 1 || took < 5*time.Second || took > 10*time.Second {
			t.Errorf("%d events in %d looks, which took %v", events, looks, took)
		}
	})
}
