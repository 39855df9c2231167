package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// holding takes a lock for a long time.
func holding(t *testing.T, c *clientv3.Client, name string) *mutex.Lock {
	t.Helper()
	locks, err := mutex.New(c, mutex.Options{Owner: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	l, err := locks.TryLock(t.Context(), name, mutex.AlertAfter(time.Hour), mutex.AutoUnlockAfter(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// says waits until a page says something.
func says(t *testing.T, d *dashboard, path string, words ...string) {
	t.Helper()
	proctest.Eventually(t, path, func() error {
		_, body, err := get(d.addr, path)
		for _, word := range words {
			if err == nil && !strings.Contains(body, word) {
				err = fmt.Errorf("it does not say %q: %s", word, body)
			}
		}
		return err
	})
}

// TestAnAbandonedLockIsReportedThenUnlocked is the life of a statement: state, metric and page say so, and nothing is
// removed while the operator wants reports only; then another unlocker removes the lock long before its deadline.
func TestAnAbandonedLockIsReportedThenUnlocked(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	reporter := startUnlocker(t, []string{etcd.Endpoint()}).ready(t)
	d := startDashboard(t, etcd.Endpoint())
	dead := holding(t, c, "billing/run")
	living := holding(t, c, "living")
	put(t, c, prefix+".deaths/"+dead.UUID(), statement("billing/run", dead.UUID(), dead.Token(), "container_ended"))

	shows(t, reporter.addr, 1, "unlocker_locks", "state", "abandoned")
	shows(t, reporter.addr, 1, "unlocker_statements", "kind", "death", "witness", "kubernetes")
	if _, err := scrape(t, reporter.addr).value("unlocker_lock_holder_ended_timestamp_seconds", "lock", "billing/run",
		"owner", "billing", "cause", "container_ended"); err != nil {
		t.Error(err)
	}
	lint(t, reporter.addr)
	says(t, d, "/", " is dead: its container ended", `class="badge abandoned"`)
	says(t, d, "/lock?name=billing/run", "its container ended", "with exit code 137 (OOMKilled)",
		"Unlockers only report it.")
	if o := command(t, "mutexctl", "--etcd.endpoints="+etcd.Endpoint(), "check"); o.Code != 1 ||
		!strings.Contains(o.Stdout, "billing/run is dead: its container ended") {
		t.Errorf("check: %+v", o)
	}
	time.Sleep(warning + 2*time.Second) // in which it would go if it could
	if !exists(t, c, prefix+"billing%2Frun/uuid") {
		t.Fatal("an unlocker that only reports removed it")
	}

	remover := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned=unlock", "--sweep.abandoned-grace=1s")
	gone(t, c, "billing%2Frun")
	shows(t, reporter.addr, 2, "unlocker_disagreements")
	says(t, d, "/status", "Unlockers disagree:</b> sweep.abandoned is report for ", ", unlock for ")
	shows(t, remover.addr, 1, "unlocker_removed_locks_total", "reason", "abandoned")
	ending := endings(t, c)[dead.UUID()]
	if ending.Ended != "abandoned" || !strings.Contains(ending.Why, "with exit code 137 (OOMKilled), says the witness "+
		"by-hand") {
		t.Errorf("the ending is %+v", ending)
	}
	says(t, d, "/history?q=ended:abandoned", "OOMKilled")
	var lost *mutex.LostError
	<-dead.Context().Done()
	if !errors.As(context.Cause(dead.Context()), &lost) || lost.Reason() != mutex.ReasonAbandoned {
		t.Errorf("the former holder's cause is %v", context.Cause(dead.Context()))
	}
	if err := living.Unlock(); err != nil {
		t.Errorf("a living holder lost its lock: %v", err)
	}
}

// calls calls alive until that is written: a call in the same instant as the one before extends nothing, and so writes
// nothing that could dispute a death.
func calls(t *testing.T, c *clientv3.Client, l *mutex.Lock) {
	t.Helper()
	proctest.Eventually(t, "an alive after the statement", func() error {
		if err := l.Alive(t.Context(), "still here"); err != nil {
			return err
		}
		stated, err := c.Get(t.Context(), prefix+".deaths/"+l.UUID())
		if err != nil {
			return err
		}
		alive, err := c.Get(t.Context(), prefix+l.Name()+"/alive")
		if err == nil && (len(alive.Kvs) == 0 || alive.Kvs[0].ModRevision < stated.Kvs[0].ModRevision) {
			err = errors.New("not written")
		}
		return err
	})
}

// TestNoLieFreesALivingHolder: whatever a witness says that is not about this very hold, or that the holder disputes,
// the lock stays.
func TestNoLieFreesALivingHolder(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned=unlock", "--sweep.abandoned-grace=10s").ready(t)
	hold := func(name string) *mutex.Lock { return holding(t, c, name) }
	living := map[string]*mutex.Lock{}
	for _, name := range []string{"uuid", "token", "stranger", "cause", "suspected", "junk", "large", "disputes",
		"back"} {
		living[name] = hold(name)
	}
	say := func(uuid, text string) { put(t, c, prefix+".deaths/"+uuid, text) }
	other := "00000000-0000-4000-8000-000000000000"
	say(other, statement("uuid", other, living["uuid"].Token(), "rebooted"))
	say(living["uuid"].UUID(), statement("uuid", other, living["uuid"].Token(), "rebooted"))
	say(living["token"].UUID(), statement("token", living["token"].UUID(), living["token"].Token()+1, "rebooted"))
	stranger := living["stranger"]
	say(stranger.UUID(), statement("token", stranger.UUID(), stranger.Token(), "rebooted"))
	say(living["cause"].UUID(), statement("cause", living["cause"].UUID(), living["cause"].Token(), "old_age"))
	put(t, c, prefix+".suspicions/"+living["suspected"].UUID(),
		statement("suspected", living["suspected"].UUID(), living["suspected"].Token(), "rebooted"))
	say(living["junk"].UUID(), "dead")
	say(living["large"].UUID(), strings.Replace(statement("large", living["large"].UUID(), living["large"].Token(),
		"rebooted"), "container worker", strings.Repeat("x", 1<<20), 1))

	// A hold that is over, and the next of the same lock.
	first := hold("moved")
	told := statement("moved", first.UUID(), first.Token(), "rebooted")
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	living["moved"] = hold("moved")
	say(first.UUID(), told)

	// Said twice, disputed in between; and taken back.
	for range 2 {
		say(living["disputes"].UUID(), statement("disputes", living["disputes"].UUID(), living["disputes"].Token(),
			"process_ended"))
		calls(t, c, living["disputes"])
	}
	say(living["back"].UUID(), statement("back", living["back"].UUID(), living["back"].Token(), "process_ended"))
	if _, err := c.Delete(t.Context(), prefix+".deaths/"+living["back"].UUID()); err != nil {
		t.Fatal(err)
	}

	// The last word is true, so all before it was read.
	dead := hold("dead")
	say(dead.UUID(), statement("dead", dead.UUID(), dead.Token(), "process_ended"))
	gone(t, c, "dead")
	shows(t, u.addr, float64(len(living)), "unlocker_locks", "state", "held")
	shows(t, u.addr, 1, "unlocker_disputed_deaths")
	time.Sleep(11 * time.Second) // longer than the grace
	for name, l := range living {
		if err := l.Unlock(); err != nil {
			t.Errorf("%s: who lives lost its lock: %v", name, err)
		}
	}
}

// TestDeathToRemoval measures how long a waiter waits when the holder's death is stated and there is no grace: nothing
// is asserted but that it gets the lock.
func TestDeathToRemoval(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned=unlock", "--sweep.abandoned-grace=0s").ready(t)
	time.Sleep(2 * time.Second) // the first canary
	var took []time.Duration
	for i := range 20 {
		l := holding(t, c, "run/"+strconv.Itoa(i))
		watch := c.Watch(t.Context(), prefix+"run%2F"+strconv.Itoa(i)+"/uuid", clientv3.WithCreatedNotify())
		<-watch
		began := time.Now()
		put(t, c, prefix+".deaths/"+l.UUID(), statement(l.Name(), l.UUID(), l.Token(), "process_ended"))
		select {
		case <-watch:
			took = append(took, time.Since(began).Round(100*time.Microsecond))
		case <-time.After(proctest.Timeout):
			t.Fatal("the lock is still there")
		}
	}
	t.Logf("from the statement to the removal: %v", took)
}
