//go:build kube

package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// world is an unlocker beside a cluster, whose etcd has the locks, too.
type world struct {
	*cluster
	layout   protocol.Layout
	locks    *clientv3.Client
	unlocker *proctest.Process
	url      string
}

// startUnlocker runs one that watches locks of its own, below a prefix of the test's.
func startUnlocker(t *testing.T, c *cluster, kubeconfig string, args ...string) *world {
	t.Helper()
	w := &world{cluster: c, locks: c.etcd.Client(t)}
	address := proctest.FreeAddr(t)
	w.url = "http://" + address
	prefix := "/" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + "/"
	var err error
	if w.layout, err = protocol.NewLayout(prefix); err != nil {
		t.Fatal(err)
	}
	w.unlocker = proctest.Start(t, programs.Command(t, "unlocker", append([]string{"--policy=alert-only",
		"--etcd.endpoints=" + c.etcd.Endpoint(), "--locks.prefix=" + prefix, "--metrics.lock-series=all",
		"--web.listen-address=" + address, "--kubernetes.pods", "--kubernetes.kubeconfig=" + kubeconfig}, args...)...))
	proctest.Answers(t, w.url+"/readyz", http.StatusOK)
	return w
}

// shows waits until the unlocker's metrics contain a line.
func (w *world) shows(t *testing.T, line string) {
	t.Helper()
	proctest.Answers(t, w.url+"/metrics", http.StatusOK, line)
}

// hold is one hold of a lock.
type hold struct {
	world      *world
	lock, uuid string
}

// lockedBy takes a lock for a container of a pod, five minutes ago, and waits until the unlocker has seen it.
func (w *world) lockedBy(t *testing.T, lock string, process metadata.Process) *hold {
	t.Helper()
	h := w.lock(t, lock, process)
	w.shows(t, fmt.Sprintf("unlocker_lock_locked_timestamp_seconds{hostname=\"host\",lock=%q", lock))
	return h
}

// lock takes a lock.
func (w *world) lock(t *testing.T, lock string, process metadata.Process) *hold {
	t.Helper()
	h := &hold{w, lock, uuid.NewString()}
	fields, err := lockrecord.Draft{
		UUID: h.uuid, Identity: metadata.Identity{Owner: "billing", Hostname: "host", PID: 1}, Process: process,
		LockedAt: time.Now().Add(-ago), AlertAt: time.Now().Add(time.Hour), AutoUnlockAt: time.Now().Add(2 * time.Hour),
	}.Fields()
	proctest.Must(t, err)
	var puts []clientv3.Op
	for _, f := range fields {
		puts = append(puts, clientv3.OpPut(w.layout.Field(lock, f.Name), f.Value))
	}
	_, err = w.locks.Txn(t.Context()).Then(puts...).Commit()
	proctest.Must(t, err)
	return h
}

// by is how a process in the pod describes itself.
func (p *pod) by(container string) metadata.Process {
	return metadata.Process{PodNamespace: p.Namespace, PodName: p.Name, PodUID: p.UID, Container: container}
}

// statement reads a key of a witness: nil if there is none.
func (h *hold) statement(ctx context.Context, key string) (*metadata.Statement, error) {
	got, err := h.world.locks.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return nil, err
	}
	s, err := protocol.Unmarshal[metadata.Statement](got.Kvs[0].Value)
	return &s, err
}

// proven waits for the proof with this cause.
func (h *hold) proven(t *testing.T, cause string) *metadata.Statement {
	t.Helper()
	return h.stated(t, h.world.layout.Death(h.uuid), cause)
}

// suspected waits for the suspicion with this cause, which is no proof.
func (h *hold) suspected(t *testing.T, cause string) *metadata.Statement {
	t.Helper()
	s := h.stated(t, h.world.layout.Suspicion(h.uuid), cause)
	if death, err := h.statement(t.Context(), h.world.layout.Death(h.uuid)); err != nil || death != nil {
		t.Errorf("%s: proven dead (%v), and it is only a suspicion that %s", h.lock, death, s.Reason)
	}
	return s
}

func (h *hold) stated(t *testing.T, key, cause string) (got *metadata.Statement) {
	t.Helper()
	deadline := time.Now().Add(100 * time.Second) // a pod has to be missing for a minute
	for {
		var err error
		if got, err = h.statement(t.Context(), key); err == nil && got != nil && got.Cause == cause {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the statement is %+v (%v), want %s", h.lock, got, err, cause)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got.Name != h.lock || got.UUID != h.uuid || got.Witness != metadata.WitnessKubernetes || got.Reason == "" ||
		got.By == "" {
		t.Errorf("%+v", got)
	}
	return got
}

// unsuspected checks that nobody doubts that the holder lives.
func (h *hold) unsuspected(t *testing.T) {
	t.Helper()
	for _, key := range []string{h.world.layout.Death(h.uuid), h.world.layout.Suspicion(h.uuid)} {
		if s, err := h.statement(t.Context(), key); err != nil || s != nil {
			t.Errorf("%s: %+v, %v", h.lock, s, err)
		}
	}
}
