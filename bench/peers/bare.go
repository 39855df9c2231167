package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// bare sends the transactions of our locks in a simple loop: the minimum for any client of the protocol.
const bare = "our transactions, bare"

// bareClient sends them.
type bareClient struct {
	etcd   *clientv3.Client
	layout protocol.Layout
	draft  lockrecord.Draft
}

func newBare(_ context.Context, etcd *clientv3.Client, _ *ends) (contest.Client, error) {
	layout, err := protocol.NewLayout("/bare/")
	return &bareClient{etcd, layout, usualDraft()}, err
}

// usualDraft has the size of the records that ours writes in these benchmarks.
func usualDraft() lockrecord.Draft {
	now := time.Now()
	return lockrecord.Draft{
		Identity: metadata.Identity{Owner: "bench", Hostname: "localhost", PID: 12345,
			Purpose: "send the invoices of the month"},
		Client: "unlocker-go v1.0.0",
		Backtrace: strings.Repeat("/srv/app/internal/billing/invoices.go:212 in "+
			"example.com/shop/internal/billing.(*Runner).Invoices\n", 6),
		LockedAt: now, AlertAt: now.Add(time.Minute), AutoUnlockAt: now.Add(time.Hour),
	}
}

func (b *bareClient) Lock(ctx context.Context, name string) (func() error, error) {
	b.draft.UUID = uuid.NewString()
	fields, err := b.draft.Fields()
	if err != nil {
		return nil, err
	}
	r, err := locktxn.Acquire(b.layout, locktxn.PlainClaim(name), b.draft.UUID, fields, false).Commit(ctx, b.etcd)
	if err != nil {
		return nil, err
	}
	if !r.Succeeded {
		return nil, fmt.Errorf("%q is held", name)
	}
	hold := locktxn.Hold{Lock: name, UUID: b.draft.UUID, Token: r.Header.Revision}
	return func() error {
		_, err := locktxn.Release(b.layout, hold).Commit(context.Background(), b.etcd)
		return err
	}, nil
}
