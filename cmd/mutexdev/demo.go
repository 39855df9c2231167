package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexlog"
)

// demoOptions configure the demo, a small company whose services take locks: most well-behaved, one forgetful, one by
// hand. All are required but Holder.
type demoOptions struct {
	Etcd   *clientv3.Client
	Layout protocol.Layout
	Speed  float64 // how much faster than normal time passes; 1 is normal
	Log    zerolog.Logger
	// Holder returns a process on this machine that calls [holdUntilKilled], for the demo to kill. Nil where no witness
	// runs: then nobody is killed.
	Holder func(host string) *exec.Cmd
}

// forgotten is the lock that its holder forgets, again and again: it alerts 20 s after it was taken, and is
// auto-unlocked after a minute.
const forgotten = "drm/rotate-keys"

// runDemo runs all services until ctx ends. It returns when they have released the locks that they do not forget.
func runDemo(ctx context.Context, o demoOptions) error {
	c := &company{options: o}
	var services []service
	if o.Holder != nil {
		services = append(services,
			c.service("payments", "payments-0", (*pod).settlements),
			c.service("payments", "payments-1", (*pod).settlements))
	}
	services = append(services,
		c.service("reports", "legacy-3", (*pod).oldReport),
		c.service("billing", "billing-7f9c5d-x2lqv", (*pod).invoices),
		c.service("billing", "billing-7f9c5d-8kw4t", (*pod).invoices),
		c.service("catalog", "catalog-55d8b-q7xzn", (*pod).imports),
		c.service("drm", "drm-0", (*pod).rotations),
		c.service("drm", "drm-1", (*pod).rotations),
		c.service("search", "search-6b4f9-m2c8d", (*pod).reindex),
		c.service("nightly", "cron-1", (*pod).dumps),
		c.service("media", "transcoder-1", (*pod).transcode),
		c.service("media", "transcoder-2", (*pod).transcode),
		c.service("media", "transcoder-3", (*pod).transcode),
		c.service("shop", "shop-77c9d-lw8bq", (*pod).searches),
		c.service("shop", "shop-77c9d-5k2zt", (*pod).searches),
		c.service("catalog", "catalog-prices-0", (*pod).reprices),
		c.service("reports", "reports-0", (*pod).statistics),
		c.service("reports", "reports-1", (*pod).statistics),
	)
	if err := errors.Join(c.problems...); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	var lives sync.WaitGroup
	for i, s := range services {
		lives.Go(func() {
			s.rest(ctx, time.Duration(i)*300*time.Millisecond) // staggered, so that some wait for others
			for ctx.Err() == nil {
				if err := s.live(s.pod, ctx); err != nil && ctx.Err() == nil {
					o.Log.Info().Str("hostname", s.host).Err(err).Msg("demo")
				}
				s.rest(ctx, time.Second) // whatever happens, not in a tight loop
			}
		})
	}
	lives.Wait()
	var problems []error
	for _, s := range services {
		problems = append(problems, s.locks.Close())
	}
	return errors.Join(problems...)
}

type company struct {
	options  demoOptions
	problems []error
}

// service is a pod and its job: live does the job once and is called again when it returns.
type service struct {
	*pod
	live func(*pod, context.Context) error
}

func (c *company) service(owner, host string, live func(*pod, context.Context) error) service {
	locks, err := mutex.New(c.options.Etcd, mutex.Options{Prefix: c.options.Layout.Prefix(), Owner: owner,
		Hostname: host, Logger: mutexlog.FromZerolog(c.options.Log)})
	if err != nil {
		c.problems = append(c.problems, err)
	}
	return service{&pod{demoOptions: c.options, locks: locks, owner: owner, host: host}, live}
}

// pod is one process of a service.
type pod struct {
	demoOptions
	locks       *mutex.Client
	owner, host string
}

// pace returns how long something takes that normally takes d.
func (p *pod) pace(d time.Duration) time.Duration { return time.Duration(float64(d) / p.Speed) }

// rest waits, as if working. It returns false if ctx ends first.
func (p *pod) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(p.pace(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
