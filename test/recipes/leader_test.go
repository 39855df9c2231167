package recipes_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	kube "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/test/recipes"
)

// replicas starts two candidates, the first of which leads, and returns what stops them.
func replicas(t *testing.T, s *locktest.Server, campaign func(context.Context, *mutex.Client)) (stop [2]func()) {
	t.Helper()
	var running sync.WaitGroup
	for i, owner := range []string{"first", "second"} {
		ctx, cancel := context.WithCancel(t.Context())
		stop[i] = cancel
		locks := s.Client(mutex.Options{Owner: owner})
		running.Go(func() { campaign(ctx, locks) })
		s.AwaitHeld("scheduler")
	}
	t.Cleanup(running.Wait)
	return stop
}

func TestGocronRunsJobsOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		ran := map[string]int{}
		stop := replicas(t, s, func(ctx context.Context, locks *mutex.Client) {
			elector := &recipes.Elector{}
			scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
			proctest.Must(t, err)
			_, err = scheduler.NewJob(gocron.DurationJob(time.Second), gocron.NewTask(func() {
				ran[locks.Options().Owner]++
			}))
			proctest.Must(t, err)
			scheduler.Start()
			if err := elector.Campaign(ctx, locks, "scheduler"); err != nil {
				t.Error(err)
			}
			proctest.Must(t, scheduler.Shutdown())
		})
		time.Sleep(10*time.Second + time.Second/2)
		stop[0]()
		time.Sleep(10 * time.Second)
		if got := fmt.Sprint(ran); got != "map[first:10 second:10]" {
			t.Errorf("%s", got)
		}
	})
}

// An etcd and a Redis that answer over a network are in no bubble.
func TestAsynqHasOneScheduler(t *testing.T) {
	s := locktest.New(t)
	server := miniredis.RunT(t)
	began := time.Now()
	stop := replicas(t, s, func(ctx context.Context, locks *mutex.Client) {
		_ = recipes.Schedule(ctx, locks, asynq.RedisClientOpt{Addr: server.Addr()}, "@every 1s", "report")
	})
	await := func(n int) {
		proctest.Eventually(t, fmt.Sprint(n, " tasks"), func() error {
			if tasks, err := server.List("asynq:{default}:pending"); len(tasks) < n {
				return fmt.Errorf("%d tasks, %w", len(tasks), err)
			}
			return nil
		})
	}
	await(4)
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("4 tasks of a schedule of seconds after %v", took)
	}
	stop[0]()
	await(6)
}

// client-go frees a Lease without waiting for the work under it. Under our lock, the next leader waits.
func TestWorkInsideALeaseIsDoneByOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		leases := &coordination.FakeCoordinationV1{Fake: &kube.Fake{}}
		tracker := kube.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
		leases.AddReactor("*", "*", kube.ObjectReaction(tracker))
		var did []string
		stop := replicas(t, s, func(ctx context.Context, locks *mutex.Client) {
			owner := locks.Options().Owner
			lease := &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: "scheduler"},
				Client:    leases, LockConfig: resourcelock.ResourceLockConfig{Identity: owner},
			}
			work := func(ctx context.Context) error {
				did = append(did, owner+" begins")
				<-ctx.Done()
				time.Sleep(30 * time.Second)
				did = append(did, owner+" ends")
				return nil
			}
			ended := func(err error) { proctest.Must(t, err) }
			leaderelection.RunOrDie(ctx, recipes.InsideLease(lease, locks, work, ended))
		})
		stop[0]()
		time.Sleep(20 * time.Second)
		lease, err := leases.Leases("shop").Get(t.Context(), "scheduler", metav1.GetOptions{})
		proctest.Must(t, err)
		did = append(did, *lease.Spec.HolderIdentity+" has the Lease")
		time.Sleep(time.Minute)
		stop[1]()
		time.Sleep(time.Minute)
		want := []string{"first begins", "second has the Lease", "first ends", "second begins", "second ends"}
		if !slices.Equal(did, want) {
			t.Errorf("%q, want %q", did, want)
		}
	})
}
