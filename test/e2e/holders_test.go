package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// statement is what a witness writes, by hand.
func statement(lock, uuid string, token int64, cause string) string {
	return fmt.Sprintf(`{"lock":%q,"uuid":%q,"token":%d,"cause":%q,"how":"container worker of pod run-0 ended",`+
		`"ended_at":"%d","exit_code":137,"detail":"OOMKilled","witness":"kubernetes","by":"by-hand","at":"%[5]d"}`,
		lock, uuid, token, cause, time.Now().Unix())
}

// TestAbandonedLockIsReportedThenUnlocked is the life of a statement: state, metric and page say so, and nothing is
// removed while the operator wants reports only; then another unlocker removes the lock long before its deadline.
func TestAbandonedLockIsReportedThenUnlocked(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	reporter := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned-grace=1s").ready(t)
	d := startDashboard(t, etcd.Endpoint())
	_, dead := holder(t, c, "billing", "billing/run")
	_, living := holder(t, c, "billing", "living")
	etcdtest.Put(t, c, prefix+".deaths/"+dead.UUID(), statement("billing/run", dead.UUID(), dead.Token(),
		"container_ended"))

	shows(t, reporter.addr, 1, `unlocker_locks{state="abandoned"}`)
	answers(t, reporter.addr, "/metrics", 200,
		`unlocker_lock_holder_ended_timestamp_seconds{cause="container_ended",hostname="`,
		`,lock="billing/run",owner="billing"`)
	answers(t, d.addr, "/", 200, " is dead: its container ended", `class="badge abandoned"`)
	answers(t, d.addr, "/lock?name=billing/run", 200, "its container ended", "with exit code 137 (OOMKilled)",
		"Unlockers only report it until its deadline: auto-unlock ")
	if o := command(t, "mutexctl", "--etcd.endpoints="+etcd.Endpoint(), "check"); o.Code != 1 ||
		!strings.Contains(o.Stdout, "billing/run is dead: its container ended") {
		t.Errorf("check: %+v", o)
	}
	write(t, c, expired("x").at(prefix+"later"))
	gone(t, c, "later") // so the other would be, too, if it could
	if !exists(t, c, "billing%2Frun") {
		t.Fatal("an unlocker that only reports removed it")
	}

	remover := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned=unlock", "--sweep.abandoned-grace=1s")
	gone(t, c, "billing%2Frun")
	shows(t, reporter.addr, 1, "unlocker_disagreements")
	answers(t, d.addr, "/status", 200, "Unlockers disagree:</b> sweep.abandoned is report for ", ", unlock for ")
	shows(t, remover.addr, 1, `unlocker_removed_locks_total{reason="abandoned"}`)
	ending := endings(t, c)[dead.UUID()]
	if ending.Cause != "abandoned" || !strings.Contains(ending.Reason, "with exit code 137 (OOMKilled), according to "+
		"the witness by-hand") {
		t.Errorf("the ending is %+v", ending)
	}
	answers(t, d.addr, "/history?q=ended:abandoned", 200, "OOMKilled")
	var lost *mutex.LostError
	<-dead.Context().Done()
	if !errors.As(context.Cause(dead.Context()), &lost) || // on a busy machine, it does not learn more than that
		lost.Reason() != mutex.LostReasonAbandoned && lost.Reason() != mutex.LostReasonRemoved {
		t.Errorf("the former holder's cause is %v", context.Cause(dead.Context()))
	}
	if err := living.Unlock(); err != nil {
		t.Errorf("a living holder lost its lock: %v", err)
	}
}

// holder starts a separate client, like another process, that holds a lock for a long time.
func holder(t *testing.T, etcd *clientv3.Client, owner, lock string) (*mutex.Client, *mutex.Lock) {
	t.Helper()
	c, err := mutex.New(etcd, mutex.Options{Owner: owner})
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	l, err := c.TryLock(t.Context(), lock, mutex.AlertAfter(time.Hour), mutex.AutoUnlockAfter(2*time.Hour))
	proctest.Must(t, err)
	return c, l
}

// wait makes a client wait for a lock until the context ends.
func wait(ctx context.Context, t *testing.T, c *mutex.Client, lock string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Lock(ctx, lock, mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(2*time.Minute))
		ended <- err
	}()
	return ended
}

// Two holders that wait for each other are counted and named until one of them gives up.
func TestDeadlockIsReported(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	u := startUnlocker(t, []string{etcd.Endpoint()})
	billing, _ := holder(t, etcd.Client(t), "billing", "stock")
	search, _ := holder(t, etcd.Client(t), "search", "orders")
	impatient, giveUp := context.WithCancel(t.Context())
	patient, end := context.WithCancel(t.Context())
	host, err := os.Hostname()
	proctest.Must(t, err)
	gaveUp := wait(impatient, t, billing, "orders")
	waits := wait(patient, t, search, "stock")

	since := fmt.Sprintf(`unlocker_deadlock_since_timestamp_seconds{holders="billing on %s:%d, search on %[1]s:%[2]d",`+
		`locks="orders, stock"}`, host, os.Getpid())
	shows(t, u.addr, 1, "unlocker_deadlocks")
	at, err := proctest.Metric(u.addr, since)
	if err != nil || time.Since(time.UnixMicro(int64(at*1e6))) > proctest.Timeout {
		t.Errorf("it is since %v, %v", at, err)
	}
	etcdtest.Eventually(t, "a warning", func() bool {
		return slices.ContainsFunc(objects(t, u.Process), func(line map[string]any) bool {
			return line["locks"] == "orders, stock" && line["level"] == "warn"
		})
	})
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the waiter that gave up got %v", err)
	}
	shows(t, u.addr, 0, "unlocker_deadlocks")
	hides(t, u.addr, since)
	select {
	case err := <-waits:
		t.Errorf("something ended the wait of the other one: %v", err)
	default:
	}
	end()
	<-waits
}
