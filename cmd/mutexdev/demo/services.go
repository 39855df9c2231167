package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// invoices is a long job that extends its lock in time: every tenant is progress. Two pods take turns, and one always
// waits.
func (p *pod) invoices(ctx context.Context) error {
	return p.locks.Do(ctx, "billing/invoice-run", p.invoiceTenants, mutex.Purpose("nightly invoices of all tenants"),
		mutex.AlertAfter(p.pace(30*time.Second)), mutex.AutoUnlockAfter(p.pace(5*time.Minute)),
		mutex.Attribute("month", "2026-10"))
}

func (p *pod) invoiceTenants(ctx context.Context) error {
	const tenants = 24
	for i := range tenants {
		if !p.rest(ctx, 5*time.Second) {
			return context.Cause(ctx)
		}
		if err := mutex.FromContext(ctx).Alive(ctx, fmt.Sprintf("tenant %d of %d", i+1, tenants)); err != nil {
			return err
		}
	}
	return nil
}

// imports is a short job that runs again and again, for one shop after the other.
func (p *pod) imports(ctx context.Context) error {
	for _, shop := range []string{"eu", "us", "asia"} {
		if err := p.importProducts(ctx, shop); err != nil {
			return err
		}
		p.rest(ctx, 3*time.Second)
	}
	return nil
}

func (p *pod) importProducts(ctx context.Context, shop string) error {
	return p.locks.Do(ctx, "catalog/import/"+shop, func(ctx context.Context) error {
		p.rest(ctx, 12*time.Second)
		return nil
	}, mutex.Purpose("import of the supplier's price list"), mutex.AlertAfter(p.pace(time.Minute)))
}

// rotations hangs while it holds its lock: no progress, no release. The lock alerts and is then auto-unlocked; the
// other pod, which waited, gets it and does the same.
func (p *pod) rotations(ctx context.Context) error { return p.rotateKeys(ctx, "2026-11") }

func (p *pod) rotateKeys(ctx context.Context, generation string) error {
	return p.locks.Do(ctx, Forgotten, func(held context.Context) error {
		<-held.Done()
		// A correct program stops here, shortly before another one gets the lock, and releases it. This one waits for
		// an answer that never comes.
		p.rest(ctx, 20*time.Second)
		return context.Cause(held)
	}, mutex.Purpose("rotation of the content keys, step 3: upload to the edge"),
		mutex.AlertAfter(p.pace(20*time.Second)), mutex.AutoUnlockAfter(p.pace(time.Minute)),
		mutex.Attribute("generation", generation))
}

// reindex hangs, too, but its heartbeat goes on: the lock alerts, and is not removed until its maximum hold. That is
// why calls of Alive belong in the work.
func (p *pod) reindex(ctx context.Context) error {
	return p.locks.Do(ctx, "search/reindex", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, mutex.Purpose("reindex after a change of the mapping"),
		mutex.AlertAfter(p.pace(40*time.Second)), mutex.AutoUnlockAfter(p.pace(3*time.Minute)),
		mutex.Heartbeat(p.pace(15*time.Minute)))
}
