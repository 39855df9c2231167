//go:build alerts

package alerts

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestWithoutPrometheus is the chain where the unlockers themselves tell an Alertmanager, which wants a password. At
// first theirs is a former one.
func TestWithoutPrometheus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	am := w.alertmanager("--web.config.file=" + file(t, "web.yml",
		"basic_auth_users: {unlocker: $2a$04$9e7OoxpTFO4hNkD70yEFW.R99v.ptiqHtPH95ReiPqpn4e5m4MywO}\n"))
	login := file(t, "http.yml", "basic_auth: {username: unlocker, password: former}\n")
	push := []string{"--alertmanager.url=" + am, "--alertmanager.config.file=" + login,
		"--alertmanager.resend-delay=1s", "--alertmanager.label=cluster=eu"}
	one := w.unlocker(push...)
	two := w.unlocker(push...)
	w.dashboard()

	slow := w.take("billing/invoice run", 2*time.Second, time.Hour)
	w.take("billing/dead", time.Second, 4*time.Second)
	proctest.Eventually(t, "the former password is refused",
		func() error { return shows(one.addr, `result="error"} 1`) })
	proctest.Must(t, os.WriteFile(login, []byte("basic_auth: {username: unlocker, password: secret}\n"), 0o600))
	proctest.Must(t, errors.Join(one.Signal(syscall.SIGHUP), two.Signal(syscall.SIGHUP)))
	a := w.wants("firing", "UnlockerLockAlerting", "billing/invoice run")
	if n := a.Annotations; n["owner"] != "billing" || !strings.Contains(n["frame"], "test/alerts") {
		t.Errorf("annotations %q", n)
	}
	a.checkLink(t, a.Annotations["host"])
	if a.Labels["cluster"] != "eu" || a.Labels["owner"] != "billing" || len(a.Labels) != 5 {
		t.Errorf("labels %v", a.Labels)
	}
	w.wants("firing", "UnlockerLockAutoUnlocked", "billing/dead")
	if told := w.told("firing", "UnlockerLockAlerting", "billing/invoice run"); told != 1 { // of what both push
		t.Errorf("people are told %d times", told)
	}

	one.Kill() // the other one goes on
	proctest.Must(t, slow.Alive(t.Context()))
	w.wants("resolved", "UnlockerLockAlerting", "billing/invoice run")

	slow = w.take("billing/second", time.Second, time.Hour)
	b := w.wants("firing", "UnlockerLockAlerting", "billing/second")
	if want := slow.Deadline(); b.StartsAt.After(want) {
		t.Errorf("it began at %v", b.StartsAt)
	}
	proctest.Must(t, shows(two.addr, `result="success"} `, "unlocker_alert_push_alerts "))
	two.Kill() // nobody tells Alertmanager any more, and it forgets
	w.wants("resolved", "UnlockerLockAlerting", "billing/second")
}
