package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// bare sends the transactions of our locks in a simple loop: the minimum for any client of the protocol.
const bare = "our transactions, bare"

// step is a contestant with part of what our transactions do.
type step struct {
	name    string
	keys    int  // of the record, from uuid on
	short   bool // the document is a byte
	compare bool
	read    bool // with the branch that reads the holder's record
	limit   bool // with a time limit per request, which is sent to the server
}

// steps lead from the raw limit to our transactions, and so show the cost of each part of the protocol.
var steps = []step{
	{"step: one key, in transactions", 1, false, false, false, false},
	{"step: and the two deadlines", 3, false, false, false, false},
	{"step: and a document, of a byte", 4, true, false, false, false},
	{"step: of the usual size", 4, false, false, false, false},
	{"step: and all compares", 4, false, true, false, false},
	{bare, 4, false, true, true, false},
	{"step: and time limits", 4, false, true, true, true},
}

// partOf reports whether a contestant belongs to a run of the steps or, if run is false, to one of the locks.
func partOf(name string, run bool) bool {
	switch name {
	case us, rawLimit, bare:
		return true
	}
	return run == slices.ContainsFunc(steps, func(s step) bool { return s.name == name })
}

// stepper is a client that does a step.
type stepper struct {
	step
	etcd   *clientv3.Client
	layout protocol.Layout
	draft  metadata.Draft
}

func (s step) client(_ context.Context, etcd *clientv3.Client, _ *ends) (contest.Client, error) {
	layout, err := protocol.NewLayout("/steps/")
	return &stepper{s, etcd, layout, usualDraft()}, err
}

// usualDraft has the size of the records that ours writes in these benchmarks.
func usualDraft() metadata.Draft {
	now := time.Now()
	return metadata.Draft{
		Holder: metadata.Holder{Owner: "bench", Hostname: "localhost", PID: 12345,
			Purpose: "send the invoices of the month"},
		Client: "unlocker-go v1.0.0",
		Backtrace: strings.Repeat("/srv/app/internal/billing/invoices.go:212 in "+
			"example.com/shop/internal/billing.(*Runner).Invoices\n", 6),
		LockedAt: now, AlertAt: now.Add(time.Minute), AutoUnlockAt: now.Add(time.Hour),
	}
}

func (s *stepper) Lock(ctx context.Context, name string) (func() error, error) {
	s.draft.UUID = uuid.NewString()
	fields, err := s.draft.Fields()
	if err != nil {
		return nil, err
	}
	if s.short {
		fields[len(fields)-1].Value = "x"
	}
	take := locktxn.Acquire(s.layout, locktxn.Sole(name), s.draft.UUID, fields[:s.keys], false)
	ctx, cancel := s.within(ctx)
	defer cancel()
	r, err := s.part(take).Commit(ctx, s.etcd)
	if err != nil {
		return nil, err
	}
	if !r.Succeeded {
		return nil, fmt.Errorf("%q is held", name)
	}
	hold := locktxn.Hold{Lock: name, UUID: s.draft.UUID, Token: r.Header.Revision}
	return func() error {
		ctx, cancel := s.within(context.Background())
		defer cancel()
		_, err := s.part(locktxn.Release(s.layout, hold)).Commit(ctx, s.etcd)
		return err
	}, nil
}

func (s *stepper) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.limit {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 2*time.Second)
}

func (s *stepper) part(t locktxn.Txn) locktxn.Txn {
	if !s.compare {
		t.If = nil
	}
	if !s.read {
		t.Else = nil
	}
	return t
}
