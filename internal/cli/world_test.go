package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// world is what a script can use besides mutexctl: the keys in etcd, and programs in the background.
type world struct {
	client  *clientv3.Client
	layout  protocol.Layout
	env     *testscript.Env
	running map[string]*exec.Cmd
	screens map[string]*screen
	ended   context.Context
	stop    context.CancelFunc
}

type worldKey struct{}

func newWorld(e *testscript.Env, client *clientv3.Client) (*world, error) {
	layout, err := protocol.NewLayout("/" + filepath.Base(e.WorkDir))
	ended, stop := context.WithCancel(context.Background())
	return &world{client: client, layout: layout, env: e, running: map[string]*exec.Cmd{},
		screens: map[string]*screen{}, ended: ended, stop: stop}, err
}

// end stops what a failed script left running.
func (w *world) end() {
	w.stop()
	for _, c := range w.running {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func in(f func(*world, *testscript.TestScript, bool, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		f(ts.Value(worldKey{}).(*world), ts, neg, args)
	}
}

// put KEY VALUE [N] writes a key below the prefix, or N of them whose {n} is a number. Both may have Go escapes.
func (w *world) put(ts *testscript.TestScript, _ bool, args []string) {
	n := 1
	if len(args) > 2 {
		var err error
		n, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	for i := range n {
		key := strings.ReplaceAll(unquote(ts, args[0]), "{n}", strconv.Itoa(i))
		_, err := w.client.Put(context.Background(), w.layout.Prefix()+key, unquote(ts, args[1]))
		ts.Check(err)
	}
}

// leased KEY VALUE [TTL] writes a key below the prefix with a lease, by default as long as that of an unlocker's
// presence, and keeps the lease alive during the test. LEASE in the key becomes the lease.
func (w *world) leased(ts *testscript.TestScript, _ bool, args []string) {
	ttl := protocol.PresenceTTL
	if len(args) > 2 {
		var err error
		ttl, err = time.ParseDuration(args[2])
		ts.Check(err)
	}
	w.keep(ts, unquote(ts, args[0]), unquote(ts, args[1]), ttl)
}

func (w *world) keep(ts *testscript.TestScript, key, value string, ttl time.Duration) {
	lease, err := w.client.Grant(context.Background(), int64(ttl.Seconds()))
	ts.Check(err)
	key = strings.ReplaceAll(key, "LEASE", strconv.FormatInt(int64(lease.ID), 16))
	_, err = w.client.Put(context.Background(), w.layout.Prefix()+key, value, clientv3.WithLease(lease.ID))
	ts.Check(err)
	_, err = w.client.KeepAlive(w.ended, lease.ID)
	ts.Check(err)
}

// unlocker ID [NAME=VALUE...] writes the presence of an unlocker that removes locks by the default policy, or in
// another mode, held_back by rules, with abandoned=unlock, exclude=GLOB or clock_skew=DURATION, or sweep= to
// publish nothing.
func (w *world) unlocker(ts *testscript.TestScript, _ bool, args []string) {
	policy := staleness.DefaultPolicy()
	p := metadata.Presence{ID: args[0], Mode: "auto-unlock", Now: metadata.Time{Time: time.Now()}}
	var exclude []string
	silent := false
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		switch value = unquote(ts, value); name {
		case "mode":
			p.Mode = value
		case "held_back":
			p.HeldBack = strings.Split(value, ",")
		case "abandoned":
			policy.UnlockAbandoned = value == metadata.AbandonedUnlock
		case "exclude":
			exclude = append(exclude, value)
		case "lock_delay", "clock_skew", "abandoned_grace":
			d, err := time.ParseDuration(value)
			ts.Check(err)
			*map[string]*time.Duration{"lock_delay": &policy.LockDelay, "clock_skew": &policy.ClockSkew,
				"abandoned_grace": &policy.AbandonedGrace}[name] = d
		case "sweep":
			silent = true
		default:
			ts.Fatalf("an unlocker has no %s", name)
		}
	}
	if p.RemovalPolicy = policy.ToPresence(exclude); silent {
		p.RemovalPolicy = nil
	}
	w.keep(ts, strings.TrimPrefix(w.layout.Unlocker(args[0]), w.layout.Prefix()), protocol.Marshal(p),
		protocol.PresenceTTL)
}

// lock NAME [FIELD=VALUE...] writes a record by hand, one key per field. Times are relative: alert_at=-5m.
func (w *world) lock(ts *testscript.TestScript, _ bool, args []string) {
	fields := map[string]string{
		"uuid": "11111111-2222-4333-8444-555555555555", "hostname": "billing-1", "pid": "77", "owner": "billing",
		"purpose":   "monthly invoices",
		"locked_at": "-10m", "alert_at": "5m", "auto_unlock_at": "20m",
	}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		fields[name] = value
	}
	name := unquote(ts, args[0])
	now := time.Now()
	var puts []clientv3.Op
	for field, value := range fields {
		if d, err := time.ParseDuration(value); err == nil &&
			(strings.HasSuffix(field, "_at") || field == lockrecord.FieldAlive ||
				field == lockrecord.FieldHeartbeatUntil) {
			value = metadata.FormatTime(now.Add(d))
		}
		if field != lockrecord.FieldMetadata { // that is JSON, with escapes of its own
			value = unquote(ts, value)
		}
		if value != "" {
			puts = append(puts, clientv3.OpPut(w.layout.Field(name, field), value))
		}
	}
	_, err := w.client.Txn(context.Background()).Then(puts...).Commit()
	ts.Check(err)
}

// stated NAME CAUSE [suspicion] writes a witness's statement about the holder of the lock.
func (w *world) stated(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := w.client.Get(context.Background(), w.layout.Field(args[0], lockrecord.FieldUUID))
	ts.Check(err)
	code := 137
	st := metadata.Statement{Name: args[0], UUID: string(resp.Kvs[0].Value), Token: resp.Kvs[0].CreateRevision,
		Cause: args[1], Reason: "the kubelet says so", ExitCode: &code, Detail: "OOMKilled",
		EndedAt: metadata.Time{Time: time.Now().Add(-3 * time.Minute)}, At: metadata.Time{Time: time.Now()},
		Witness: metadata.WitnessKubernetes, By: "eu-1"}
	key := w.layout.Death(st.UUID)
	if len(args) == 3 {
		key = w.layout.Suspicion(st.UUID)
	}
	_, err = w.client.Put(context.Background(), key, protocol.Marshal(st))
	ts.Check(err)
}

// asked NAME REASON asks the holder of a lock to finish.
func (w *world) asked(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := w.client.Get(context.Background(), w.layout.Field(args[0], lockrecord.FieldUUID))
	ts.Check(err)
	r := metadata.FinishRequest{UUID: string(resp.Kvs[0].Value), Token: resp.Kvs[0].CreateRevision, By: "bob",
		Source: "cli", At: metadata.Time{Time: time.Now()}, Reason: args[1]}
	_, err = w.client.Put(context.Background(), w.layout.Field(args[0], lockrecord.FieldAsked), protocol.Marshal(r))
	ts.Check(err)
}

// etcd PATTERN looks for a key below the prefix whose "key value", the key without the prefix, matches.
func (w *world) etcd(ts *testscript.TestScript, neg bool, args []string) {
	resp, err := w.client.Get(context.Background(), w.layout.Prefix(), clientv3.WithPrefix())
	ts.Check(err)
	pattern := regexp.MustCompile(args[0])
	found := false
	for _, kv := range resp.Kvs {
		line := strings.TrimPrefix(string(kv.Key), w.layout.Prefix()) + " " + string(kv.Value)
		ts.Logf("%q", line)
		found = found || pattern.MatchString(line)
	}
	if found == neg {
		ts.Fatalf("etcd %s: found is %v", args[0], found)
	}
}

func unquote(ts *testscript.TestScript, s string) string {
	out, err := strconv.Unquote(`"` + s + `"`)
	ts.Check(err)
	return out
}

// start ID COMMAND... runs a program in the background, with its output in the files ID.out and ID.err.
func (w *world) start(ts *testscript.TestScript, _ bool, args []string) {
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	c := exec.Command(path, args[2:]...)
	c.Dir = ts.MkAbs(".")
	c.Env = append(w.env.Vars, "MUTEX_UUID="+ts.Getenv("MUTEX_UUID"))
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, wherever the test runs
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	defer out.Close()
	errs, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	defer errs.Close()
	c.Stdout = out
	c.Stderr = errs
	ts.Check(c.Start())
	w.running[args[0]] = c
}

// signal ID NUMBER sends a signal.
func (w *world) signal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
		"USR1": syscall.SIGUSR1, "KILL": syscall.SIGKILL}
	ts.Check(w.running[args[0]].Process.Signal(signals[args[1]]))
}

// finish ID STATUS waits for a program and checks its exit status.
func (w *world) finish(ts *testscript.TestScript, _ bool, args []string) {
	c := w.running[args[0]]
	delete(w.running, args[0])
	timer := time.AfterFunc(proctest.Timeout, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	err := c.Wait()
	if screen := w.screens[args[0]]; screen != nil {
		<-screen.dark
		delete(w.screens, args[0])
	}
	ts.Logf("%s ended: %v\n%s%s", args[0], err, ts.ReadFile(args[0]+".out"), ts.ReadFile(args[0]+".err"))
	demand(ts, err, args[1])
}

// status NUMBER COMMAND... runs a program and checks its exit status.
func status(ts *testscript.TestScript, _ bool, args []string) {
	demand(ts, ts.Exec(args[1], args[2:]...), args[0])
}

func demand(ts *testscript.TestScript, err error, want string) {
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if strconv.Itoa(got) != want {
		ts.Fatalf("the status is %d, want %s", got, want)
	}
}

// eventually PATTERN COMMAND... repeats a program until its output matches. With a file name instead of the command, it
// reads the file.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	out := ""
	for began := time.Now(); time.Since(began) < proctest.Timeout; time.Sleep(4 * proctest.Pause(time.Since(began))) {
		if len(args) == 2 {
			b, _ := os.ReadFile(ts.MkAbs(args[1]))
			out = string(b)
		} else {
			c := exec.Command(args[1], args[2:]...)
			c.Dir = ts.MkAbs(".")
			c.Env = append(os.Environ(), "MUTEXCTL_ETCD_ENDPOINTS="+ts.Getenv("MUTEXCTL_ETCD_ENDPOINTS"),
				"MUTEXCTL_LOCKS_PREFIX="+ts.Getenv("MUTEXCTL_LOCKS_PREFIX"))
			b, _ := c.CombinedOutput()
			out = string(b)
		}
		if pattern.MatchString(out) != neg {
			return
		}
	}
	ts.Fatalf("%s did not come in %v, only:\n%s", fmt.Sprint(args), proctest.Timeout, out)
}
