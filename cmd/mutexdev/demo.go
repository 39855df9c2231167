package main

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexlog"
)

// demoOptions configure the demo, a small company whose services take locks: most well-behaved, one forgetful, one by
// hand.
type demoOptions struct {
	Etcd  *clientv3.Client
	Speed float64 // how much faster than normal time passes; 1 is normal
	Log   zerolog.Logger
	// Holder returns a process on this machine that calls [holdUntilKilled], for the demo to kill. Nil where no witness
	// runs: then nobody is killed.
	Holder func(host string) *exec.Cmd
}

// forgottenLock is the lock that its holder forgets, again and again: it alerts 20 s after it was taken, and is
// auto-unlocked after a minute.
const forgottenLock = "drm/rotate-keys"

// service is a pod and its job, which is done again when it returns.
type service struct {
	owner, host string
	job         func(*pod, context.Context) error
}

// runDemo runs all services until ctx ends. It returns when they have released the locks that they do not forget.
func runDemo(ctx context.Context, o demoOptions) error {
	services := []service{
		{"reports", "legacy-3", (*pod).oldReport},
		{"billing", "billing-7f9c5d-x2lqv", (*pod).invoices},
		{"billing", "billing-7f9c5d-8kw4t", (*pod).invoices},
		{"catalog", "catalog-55d8b-q7xzn", (*pod).imports},
		{"drm", "drm-0", (*pod).rotateKeys},
		{"drm", "drm-1", (*pod).rotateKeys},
		{"search", "search-6b4f9-m2c8d", (*pod).reindex},
		{"nightly", "cron-1", (*pod).dumps},
		{"media", "transcoder-1", (*pod).transcode},
		{"media", "transcoder-2", (*pod).transcode},
		{"media", "transcoder-3", (*pod).transcode},
		{"shop", "shop-77c9d-lw8bq", (*pod).searches},
		{"shop", "shop-77c9d-5k2zt", (*pod).searches},
		{"catalog", "catalog-prices-0", (*pod).reprices},
		{"reports", "reports-0", (*pod).statistics},
		{"reports", "reports-1", (*pod).statistics},
	}
	if o.Holder != nil {
		services = append([]service{
			{"payments", "payments-0", (*pod).settlements},
			{"payments", "payments-1", (*pod).settlements},
		}, services...)
	}
	var lives sync.WaitGroup
	problems := make([]error, len(services))
	for i, s := range services {
		stagger := time.Duration(i) * 300 * time.Millisecond // so that some wait for others
		lives.Go(func() { problems[i] = o.live(ctx, s, stagger) })
	}
	lives.Wait()
	return errors.Join(problems...)
}

// live does the job of a service again and again, until ctx ends.
func (o demoOptions) live(ctx context.Context, s service, pause time.Duration) error {
	locks, err := mutex.New(o.Etcd, mutex.Options{Owner: s.owner, Hostname: s.host,
		Logger: mutexlog.FromZerolog(o.Log)})
	if err != nil {
		return err
	}
	p := &pod{demoOptions: o, service: s, locks: locks}
	for p.rest(ctx, pause) {
		if err := s.job(p, ctx); err != nil && ctx.Err() == nil {
			o.Log.Info().Str("hostname", s.host).Err(err).Msg("demo")
		}
		pause = time.Second // whatever happens, not in a tight loop
	}
	return locks.Close()
}

// pod is one process of a service.
type pod struct {
	demoOptions
	service
	locks *mutex.Client
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

func (p *pod) works(d time.Duration) func(context.Context) error {
	return func(held context.Context) error {
		p.rest(held, d)
		return nil
	}
}
