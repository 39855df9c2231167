package recipes

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Elector is a gocron.Elector: the replica that leads runs the jobs.
type Elector struct{ leads atomic.Pointer[mutex.Lock] }

// Campaign makes this replica a candidate until ctx ends.
func (e *Elector) Campaign(ctx context.Context, locks *mutex.Client, name string) error {
	return leader.Lead(ctx, locks, name, leader.Options{}, func(ctx context.Context) error {
		e.leads.Store(mutex.FromContext(ctx))
		<-ctx.Done()
		return nil
	})
}

// IsLeader returns an error unless this replica leads.
func (e *Elector) IsLeader(context.Context) error {
	if l := e.leads.Load(); l != nil {
		return context.Cause(l.Context())
	}
	return errors.New("another replica leads")
}

// Schedule runs asynq's scheduler on the replica that leads.
func Schedule(ctx context.Context, locks *mutex.Client, redis asynq.RedisConnOpt, cron, task string) error {
	return leader.Lead(ctx, locks, "scheduler", leader.Options{}, func(ctx context.Context) error {
		s := asynq.NewScheduler(redis, nil)
		if _, err := s.Register(cron, asynq.NewTask(task, nil)); err != nil {
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	})
}

// InsideLease leads while this replica also has a Lease of Kubernetes. The function ended is called last, maybe after
// RunOrDie has returned. It should end the process, which would otherwise keep the Lease without working.
func InsideLease(lease resourcelock.Interface, locks *mutex.Client, work func(context.Context) error,
	ended func(error)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: lease, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				ended(leader.Lead(ctx, locks, "scheduler", leader.Options{}, work))
			},
			OnStoppedLeading: func() {}, // work may still run, under our lock
		},
	}
}
