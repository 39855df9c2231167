//go:build browser

package browser

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// stage is an etcd with locks, and a mutexdash that shows them.
type stage struct {
	t      testing.TB
	etcd   *etcdtest.Server
	client *clientv3.Client
	layout protocol.Layout
	url    string               // of the list
	run    func() (kill func()) // starts mutexdash
	kill   func()
	ops    string // address of the metrics of mutexdash; empty while it does not run
	sample string // says which revision of this etcd mutexdash knows
	latest int64  // revision of the last thing written
}

// newStage starts an empty etcd and a mutexdash with these flags on top.
func newStage(t testing.TB, flags ...string) *stage {
	t.Helper()
	layout := protocol.DefaultLayout()
	s := &stage{t: t, etcd: etcdtest.Start(t), layout: layout, sample: "mutexdash_etcd_revision"}
	s.client = s.etcd.Client(t)
	address := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	s.url = "http://" + address + "/"
	s.run = func() func() {
		kill := s.start("mutexdash",
			append([]string{"--etcd.endpoints=" + s.etcd.Endpoint(), "--web.listen-address=" + address,
				"--web.ops-address=" + ops, "--web.environment=prod-eu", "--web.shutdown-delay=0s"}, flags...)...)
		proctest.Answers(t, "http://"+ops+"/readyz", http.StatusOK)
		s.ops = ops
		return func() {
			s.ops = ""
			kill()
		}
	}
	s.kill = s.run()
	return s
}

// staged returns the stage of a parallel test, and a tab for its pages.
func staged(t *testing.T) (*stage, *tab) {
	t.Helper()
	t.Parallel()
	s := newStage(t)
	return s, newTab(t, s)
}

// unlocker starts an unlocker, without which the pages say that nothing is removed.
func (s *stage) unlocker(policy string) {
	s.t.Helper()
	ops := proctest.FreeAddr(s.t)
	s.start("unlocker", "--etcd.endpoints="+s.etcd.Endpoint(), "--web.listen-address="+ops, "--policy="+policy,
		"--web.shutdown-delay=0s")
	proctest.Answers(s.t, "http://"+ops+"/readyz", http.StatusOK)
}

// start runs one of our programs until the test ends.
func (s *stage) start(program string, flags ...string) (kill func()) {
	s.t.Helper()
	return proctest.Start(s.t, programs.Command(s.t, program, flags...)).Kill
}

// lock is a record as written without a client library. Times are relative to now; zero ones are omitted.
type lock struct {
	name, owner, host, purpose, trace string
	held                              time.Duration // ago
	alert, unlock                     time.Duration // ahead
	alive                             string
	pid                               string   // 17 where it is left out
	more                              []string // further fields and values
}

// hold takes a lock and returns the uuid of the hold.
func (s *stage) hold(l lock) string {
	s.t.Helper()
	id := uuid.NewString()
	now := time.Now()
	fields := append([]string{
		lockrecord.FieldUUID, id, lockrecord.FieldOwner, l.owner, lockrecord.FieldHostname, l.host,
		lockrecord.FieldPurpose,
		l.purpose, lockrecord.FieldBacktrace, l.trace, lockrecord.FieldLockedAt, metadata.FormatTime(now.Add(-l.held)),
	}, l.more...)
	if l.host != "" {
		fields = append(fields, "pid", cmp.Or(l.pid, "17"))
	}
	if l.alert != 0 {
		fields = append(fields, lockrecord.FieldAlertAt, metadata.FormatTime(now.Add(l.alert)))
	}
	if l.unlock != 0 {
		fields = append(fields, lockrecord.FieldAutoUnlockAt, metadata.FormatTime(now.Add(l.unlock)))
	}
	if l.alive != "" {
		fields = append(fields, lockrecord.FieldAlive, lockrecord.FormatAlive(now.Add(-40*time.Second), l.alive))
	}
	s.put(l.name, fields...)
	return id
}

// takes returns a hold taken a minute ago, by o on h, that alerts after a time.
func (s *stage) takes(name string, alert time.Duration) {
	s.t.Helper()
	s.hold(lock{name: name, owner: "o", host: "h", held: time.Minute, alert: alert, unlock: 9 * time.Hour})
}

// alerts makes a hold alerting for a minute.
func (s *stage) alerts(name string) {
	s.t.Helper()
	s.put(name, lockrecord.FieldAlertAt, metadata.FormatTime(time.Now().Add(-time.Minute)))
}

// put writes fields of a lock in one transaction. Empty values are omitted.
func (s *stage) put(name string, fields ...string) {
	s.t.Helper()
	var puts []clientv3.Op
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "" {
			puts = append(puts, clientv3.OpPut(s.layout.Field(name, fields[i]), fields[i+1]))
		}
	}
	s.do(puts...)
}

// release ends a hold.
func (s *stage) release(name string) {
	s.t.Helper()
	s.do(clientv3.OpDelete(s.layout.Record(name), clientv3.WithPrefix()))
}

// wait adds a waiter that has waited for a lock for this long.
func (s *stage) wait(name, owner, host, purpose string, since time.Duration) {
	s.t.Helper()
	now := time.Now()
	ticket := metadata.Ticket{UUID: uuid.NewString(),
		Identity: metadata.Identity{Owner: owner, Hostname: host, PID: 17, Purpose: purpose},
		Since:    metadata.Time{Time: now.Add(-since)}, TimeoutAt: metadata.Time{Time: now.Add(20 * time.Minute)}}
	s.do(clientv3.OpPut(s.layout.Ticket(name, ticket.UUID), protocol.Marshal(ticket)))
}

func (s *stage) do(ops ...clientv3.Op) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	done, err := s.client.Txn(ctx).Then(ops...).Commit()
	proctest.Must(s.t, err)
	s.latest = done.Header.Revision
}

// shown waits until a running mutexdash knows everything that was written, so that the next page shows it even without
// scripts.
func (s *stage) shown() {
	s.t.Helper()
	if s.ops == "" {
		return
	}
	proctest.Eventually(s.t, fmt.Sprintf("%s of %d", s.sample, s.latest), func() error {
		got, err := proctest.Metric(s.ops, s.sample)
		if err == nil && int64(got) < s.latest {
			err = fmt.Errorf("it shows revision %.0f", got)
		}
		return err
	})
}

// many writes healthy locks.
func (s *stage) many(n int) {
	s.t.Helper()
	for i := range n {
		s.hold(lock{name: fmt.Sprintf("batch/job-%03d", i), owner: "batch", host: "batch-" + fmt.Sprint(i%7),
			purpose: "one of many", held: time.Duration(i*i) * time.Second,
			alert: time.Hour + time.Duration(i)*time.Minute, unlock: 3 * time.Hour})
	}
}

// record returns the record of a lock in etcd.
func (s *stage) record(lock string) *metadata.Record {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	document, _, err := lockstore.New(s.client, s.layout).ReadRecord(ctx, lock)
	proctest.Must(s.t, err)
	return &document.Record
}
