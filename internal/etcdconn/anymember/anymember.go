// Package anymember sends requests past members of etcd that cannot serve them: one that is cut off from its cluster,
// which would keep each request for seconds, and a learner. Requests go to the members in turn.
package anymember

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// retrying is the key of a context whose request [Retry] sends.
type retrying struct{}

// Retry calls send, and repeats it while again says so of its error. A member without a leader refuses the first tries
// at once. The last ones wait for a leader, as all of etcd may be electing one: a read that waited is refused when
// there is one. A Retry within another one only calls send.
func Retry(ctx context.Context, again func(error) bool, send func(context.Context) error) error {
	if ctx.Value(retrying{}) != nil {
		return send(ctx)
	}
	ctx = context.WithValue(ctx, retrying{}, true)
	for pause := 10 * time.Millisecond; pause < time.Second; pause *= 5 {
		err := send(clientv3.WithRequireLeader(ctx))
		if !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
	if err := send(ctx); !again(err) {
		return err
	}
	return send(ctx)
}

// IsRefusal reports whether a member refused a request, of which nothing was done, because it has no leader or is a
// learner.
func IsRefusal(reads bool, err error) bool {
	err = rpctypes.Error(err)
	learner := rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, learner) ||
		reads && errors.Is(err, rpctypes.ErrLeaderChanged)
}

// Client reads, commits and grants leases with [Retry].
type Client struct {
	clientv3.KV
	clientv3.Lease
}

// NewClient returns a client that uses etcd, which the caller closes.
func NewClient(etcd *clientv3.Client) Client { return Client{kv{etcd}, lease{etcd}} }

// retryWithAnswer is [Retry] for a request with an answer.
func retryWithAnswer[T any](ctx context.Context, reads bool,
	send func(context.Context) (T, error)) (answer T, err error) {
	again := func(err error) bool { return IsRefusal(reads, err) }
	err = Retry(ctx, again, func(ctx context.Context) (err error) {
		answer, err = send(ctx)
		return err
	})
	return answer, err
}

type kv struct{ clientv3.KV }

func (k kv) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return retryWithAnswer(ctx, true, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.KV.Get(ctx, key, opts...)
	})
}

func (k kv) Txn(ctx context.Context) clientv3.Txn { return &txn{kv: k.KV, ctx: ctx} }

// txn is a transaction as data, which can be sent again.
type txn struct {
	kv        clientv3.KV
	ctx       context.Context //nolint:containedctx // as in etcd's client
	cmps      []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op
}

func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = cmps
	return t
}

func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = ops
	return t
}

func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = ops
	return t
}

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	writes := func(op clientv3.Op) bool { return !op.IsGet() }
	reads := !slices.ContainsFunc(t.then, writes) && !slices.ContainsFunc(t.otherwise, writes)
	return retryWithAnswer(t.ctx, reads, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.kv.Txn(ctx).If(t.cmps...).Then(t.then...).Else(t.otherwise...).Commit()
	})
}

type lease struct{ clientv3.Lease }

func (l lease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	return retryWithAnswer(ctx, false, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.Lease.Grant(ctx, ttl)
	})
}
