package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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

// says waits until a page says something.
func says(t *testing.T, d *dashboard, path string, words ...string) {
	t.Helper()
	proctest.Eventually(t, path, func() error {
		_, body, err := proctest.Get(http.DefaultClient, "http://"+d.addr+path)
		if err == nil {
			err = contains(body, words...)
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
	reporter := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned-grace=1s").ready(t)
	d := startDashboard(t, etcd.Endpoint())
	_, dead := holder(t, c, "billing", "billing/run")
	_, living := holder(t, c, "billing", "living")
	etcdtest.Put(t, c, prefix+".deaths/"+dead.UUID(), statement("billing/run", dead.UUID(), dead.Token(),
		"container_ended"))

	shows(t, reporter.addr, 1, `unlocker_locks{state="abandoned"}`)
	shows(t, reporter.addr, 1, `unlocker_statements{kind="death",witness="kubernetes"}`)
	if err := contains(answers(t, reporter.addr, "/metrics", http.StatusOK),
		`unlocker_lock_holder_ended_timestamp_seconds{cause="container_ended",hostname="`,
		`,lock="billing/run",owner="billing"`); err != nil {
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
	write(t, c, expired("x").at(prefix+"later"))
	gone(t, c, "later") // so the other would be, too, if it could
	if !exists(t, c, "billing%2Frun") {
		t.Fatal("an unlocker that only reports removed it")
	}

	remover := startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.abandoned=unlock", "--sweep.abandoned-grace=1s")
	gone(t, c, "billing%2Frun")
	shows(t, reporter.addr, 1, "unlocker_disagreements")
	says(t, d, "/status", "Unlockers disagree:</b> sweep.abandoned is report for ", ", unlock for ")
	shows(t, remover.addr, 1, `unlocker_removed_locks_total{reason="abandoned"}`)
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
