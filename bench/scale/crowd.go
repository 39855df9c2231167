package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// crowd is a great number of locks in one etcd.
type crowd struct {
	server *servers.Process
	etcd   *clientv3.Client
	layout protocol.Layout
	plain  bool    // each field is a key of its own, as clients write that know no document
	due    int     // how many locks became due so far
	rate   float64 // at which locks were taken, a second
	tokens []int64 // of every lock, by its number
}

// alerting is how many of the locks alert, whatever their total, because what needs attention does not grow with it.
const alerting = 1000

func newCrowd(server *servers.Process, plain bool) (*crowd, error) {
	etcd, err := servers.EtcdClient(server.Addr)
	if err != nil {
		return nil, err
	}
	return &crowd{server: server, etcd: etcd, layout: protocol.DefaultLayout(), plain: plain}, nil
}

func name(i int) string { return fmt.Sprintf("service-%02d/tenant-%07d/nightly", i%50, i) }
func uuid(i int) string { return fmt.Sprintf("4be0643f-1d98-4573-b7cd-%012x", i) }

// number is the i of a uuid.
func number(uuid string) (i int, err error) {
	_, err = fmt.Sscanf(uuid, "4be0643f-1d98-4573-b7cd-%x", &i)
	return i, err
}

// trace is a backtrace of the usual length, which readers of many locks must not keep.
var trace = strings.Repeat("/srv/app/internal/billing/invoices.go:212 in "+
	"example.com/shop/internal/billing.(*Runner).Invoices\n", 10)

func draft(i int, alertAt, autoUnlockAt time.Time) lockrecord.Draft {
	return lockrecord.Draft{
		UUID: uuid(i),
		Identity: metadata.Identity{Owner: fmt.Sprintf("service-%02d", i%50),
			Hostname: fmt.Sprintf("service-%02d-7f9c-%d", i%50, i%400), PID: int64(i%30000 + 1),
			Purpose: fmt.Sprintf("invoices of shard %d", i%100)},
		Client: "unlocker-go v1.0.0", Backtrace: trace,
		LockedAt: time.Now(), AlertAt: alertAt, AutoUnlockAt: autoUnlockAt,
	}
}

// fields are the keys of a lock: four, or eight plain ones.
func (c *crowd) fields(i int, alertAt, autoUnlockAt time.Time) ([]metadata.Field, error) {
	d := draft(i, alertAt, autoUnlockAt)
	if !c.plain {
		return d.Fields()
	}
	return []metadata.Field{
		{Name: lockrecord.FieldUUID, Value: d.UUID},
		{Name: lockrecord.FieldAlertAt, Value: metadata.FormatTime(d.AlertAt)},
		{Name: lockrecord.FieldAutoUnlockAt, Value: metadata.FormatTime(d.AutoUnlockAt)},
		{Name: lockrecord.FieldOwner, Value: d.Owner},
		{Name: lockrecord.FieldHostname, Value: d.Hostname},
		{Name: "pid", Value: strconv.FormatInt(d.PID, 10)},
		{Name: lockrecord.FieldLockedAt, Value: metadata.FormatTime(d.LockedAt)},
		{Name: lockrecord.FieldBacktrace, Value: d.Backtrace},
	}, nil
}

// batch is how many locks one transaction takes: etcd allows 128 operations.
const batch = 16

// growTo takes locks until there are n, and measures etcd then.
func (c *crowd) growTo(ctx context.Context, n int, f figures) error {
	first := len(c.tokens)
	c.tokens = append(c.tokens, make([]int64, n-first)...)
	began := time.Now()
	now := time.Now()
	err := c.take(ctx, first, n, name, func(i int) (alertAt, autoUnlockAt time.Time) {
		if i < alerting {
			return now.Add(-time.Duration(i+1) * time.Second), now.Add(24 * time.Hour)
		}
		return now.Add(time.Duration(3600+i%7200) * time.Second * 2), now.Add(24 * time.Hour)
	}, func(i int, token int64) { c.tokens[i] = token })
	if err != nil {
		return err
	}
	c.rate = float64(n-first) / time.Since(began).Seconds()
	f["generated"] = c.rate
	status, err := c.etcd.Status(ctx, c.server.Addr)
	if err != nil {
		return err
	}
	f["store"] = float64(status.DbSizeInUse) / float64(n)
	return nil
}

// take takes the locks from first up to last, exclusive, in nested transactions.
func (c *crowd) take(ctx context.Context, first, last int, name func(int) string,
	times func(int) (alertAt, autoUnlockAt time.Time), taken func(i int, token int64)) error {
	var next atomic.Int64
	next.Store(int64(first))
	return contest.Each(8, func(int) error {
		for {
			from := int(next.Add(batch)) - batch
			if from >= last || ctx.Err() != nil {
				return ctx.Err()
			}
			to := min(from+batch, last)
			var txns []locktxn.Txn
			for i := from; i < to; i++ {
				alertAt, autoUnlockAt := times(i)
				fields, err := c.fields(i, alertAt, autoUnlockAt)
				if err != nil {
					return err
				}
				txns = append(txns, locktxn.Acquire(c.layout, locktxn.PlainClaim(name(i)), uuid(i), fields, false))
			}
			r, err := locktxn.Nest(txns).Commit(ctx, c.etcd)
			if err != nil {
				return err
			}
			for i, one := range r.Responses {
				if !one.GetResponseTxn().GetSucceeded() {
					return fmt.Errorf("lock %q is held already", name(from+i))
				}
				taken(from+i, r.Header.Revision)
			}
		}
	})
}

// calm returns the number of a lock that does not alert, cycling through all of them with n.
func (c *crowd) calm(n int) int { return alerting + n*7919%(len(c.tokens)-alerting) }

// extend extends lock i.
func (c *crowd) extend(ctx context.Context, i int) (revision int64, err error) {
	by := metadata.FormatTime(time.Now().Add(25 * time.Hour))
	hold := locktxn.Hold{Lock: name(i), UUID: uuid(i), Token: c.tokens[i]}
	r, err := locktxn.Alive(c.layout, hold, by, by, lockrecord.FormatAlive(time.Now(), "shard 7 of 9")).Commit(ctx,
		c.etcd)
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}
