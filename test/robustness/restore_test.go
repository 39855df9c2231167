//go:build robustness

package robustness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var etcdutl = flag.String("etcdutl", "", "path of etcd's own tool for backups")

const life = 10 * time.Second

type backup struct {
	*stage
	etcd *etcdtest.Server
	file string
	had  map[string]int64 // the holds in the backup

	kept, late *mutex.Lock // held when the backup was made and ever since; taken since
	// who waited for the lock of a dead holder when the backup was made; who did so since
	early, tardy <-chan *mutex.Lock
}

// newBackup starts an etcd after this many elections, and its clients. A restored etcd starts with the first.
func newBackup(t *testing.T, elections int, flags ...string) *backup {
	b := &backup{etcd: etcdtest.Start(t)}
	for range elections {
		b.etcd.Restart(t)
	}
	b.stage = newScene(t, b.etcd.Endpoint())
	b.file = filepath.Join(b.dir, "backup.db")
	b.programs(flags...)
	return b
}

// make creates the backup while everything runs, and continues for a while.
func (b *backup) make() {
	b.kept = b.take("kept", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(time.Minute))
	returned := b.take("returned", mutex.AutoUnlockAfter(life))
	b.stale("dead", life)
	b.early = b.wait("dead", 1)
	b.had = b.tokens()
	b.save()
	b.tardy = b.wait("dead", 2)
	for _, l := range []*mutex.Lock{returned, b.take("passing"), b.take("passing too")} {
		proctest.Must(b.t, l.Unlock())
	}
	for range 1000 { // what others do: more than is done in the first seconds after a restore
		_, err := b.direct.Put(context.Background(), "/elsewhere", "")
		proctest.Must(b.t, err)
	}
	b.late = b.take("late", mutex.AutoUnlockAfter(time.Minute))
}

func (b *backup) save() {
	ctx, cancel := timeout(20 * time.Second)
	defer cancel()
	from, err := b.direct.Snapshot(ctx)
	proctest.Must(b.t, err)
	defer from.Close()
	to, err := os.Create(b.file)
	proctest.Must(b.t, err)
	_, err = io.Copy(to, from)
	proctest.Must(b.t, errors.Join(err, to.Close()))
}

// restore replaces etcd's data by the backup, and returns when etcd was last unavailable.
func (b *backup) restore(flags ...string) (away time.Time) {
	b.etcd.Stop()
	proctest.Must(b.t, os.RemoveAll(b.etcd.Dir()))
	ctx, cancel := timeout(time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, *etcdutl,
		append([]string{"snapshot", "restore", b.file, "--data-dir=" + b.etcd.Dir()}, flags...)...)
	if out, err := command.CombinedOutput(); err != nil {
		b.t.Fatalf("etcdutl snapshot restore: %v\n%s", err, out)
	}
	away = time.Now()
	b.etcd.Restart(b.t)
	if now := b.tokens(); !maps.Equal(now, b.had) {
		b.t.Errorf("restored %v, the backup had %v", now, b.had)
	}
	return away
}

// goesOn expects all clients to continue after a restore: first those that waited before the backup, then the later
// ones.
func (b *backup) goesOn() {
	b.t.Helper()
	b.passed(b.tardy, b.passed(b.early, b.kept.Token()))
	b.gone("dead", "returned")
	proctest.Must(b.t, b.kept.Alive(context.Background()))
	proctest.Must(b.t, b.kept.Unlock())
	b.sameView()
}

// asDocumented are the flags of docs/operations.md for restoring a backup.
func asDocumented() []string { return []string{"--bump-revision=1000000000", "--mark-compacted"} }

const short = 3 * time.Second

func briefly() string { return "--sweep.min-warning=" + short.String() }

// TestARestoreWithRaisedRevisionsIsAGap restores a backup as docs/operations.md says.
func TestARestoreWithRaisedRevisionsIsAGap(t *testing.T) {
	t.Parallel()
	b := newBackup(t, 0)
	b.work(b.client(b.given))
	b.make()
	away := b.restore(asDocumented()...)
	if lost := lostFor(t, b.late); !lost.Certain {
		t.Errorf("the hold that the backup does not know: %v", lost)
	}
	b.sameView()
	for _, p := range b.unlockers {
		b.listsAgain(p)
	}
	if next := b.take("late"); next.Token() < 1_000_000_000 {
		t.Errorf("a token of %d after one of %d", next.Token(), b.late.Token())
	}
	b.goesOn()
	b.removedOnce(away.Add(warning), "dead", "returned")
	for _, p := range b.unlockers {
		if says(t, p, "older state") {
			t.Errorf("%s takes a raised revision for one that went back", p.name)
		}
	}
}

// listsAgain expects the watch of an unlocker to have ended: with a compaction, or before that, where the restore took
// long.
func (b *backup) listsAgain(unlocker *child) {
	proctest.Eventually(b.t, "the end of the watch of "+unlocker.name, func() error {
		for _, reason := range []string{lockstore.ReasonCompacted, lockstore.ReasonSilent, lockstore.ReasonConnection} {
			n, _ := proctest.Metric(unlocker.addr, fmt.Sprintf("unlocker_watch_restarts_total{reason=%q}", reason))
			if n > 0 {
				return nil
			}
		}
		return errors.New("it did not")
	})
}

// TestARestoreThatLowersTheRaftTermWaitsForARestart does the same to an etcd that had elections, as any but a new one
// has. An unlocker that saw a later term does not trust the revision alone: a restored etcd may have written past it.
func TestARestoreThatLowersTheRaftTermWaitsForARestart(t *testing.T) {
	t.Parallel()
	b := newBackup(t, 3, briefly())
	b.make()
	b.restore(asDocumented()...)
	if lost := lostFor(t, b.late); !lost.Certain {
		t.Errorf("the hold that the backup does not know: %v", lost)
	}
	b.waitForConfirmation()
	confirmed := time.Now()
	b.restartUnlocker(0, briefly())
	b.goesOn()
	b.removedOnce(confirmed.Add(short), "dead", "returned")
}

// waitForConfirmation expects both unlockers to remove nothing and to report why.
func (b *backup) waitForConfirmation() {
	b.t.Helper()
	for _, p := range b.unlockers {
		b.heldBack(p, staleness.RuleRevision, 2)
		if !says(b.t, p, "etcd went back to an older state") {
			b.t.Errorf("%s does not say what happened", p.name)
		}
	}
	b.removedOnce(time.Time{})
}

// TestARestoreWithoutRaisedRevisionsWaitsForRestarts restores a backup without the flags of docs/operations.md, then
// follows its instructions for that case.
func TestARestoreWithoutRaisedRevisionsWaitsForRestarts(t *testing.T) {
	t.Parallel()
	b := newBackup(t, 0, briefly())
	b.make()
	fence := fencing.NewMemory(0)
	leave, err := fence.Enter(t.Context(), "books", b.late.Token())
	proctest.Must(t, err)
	leave()
	b.restore()
	lost, is := errors.AsType[*mutex.LostError](b.late.Alive(t.Context()))
	if !is || !lost.Certain {
		t.Errorf("the hold that the backup does not know: %v", lost)
	}
	again := b.take("late", mutex.AutoUnlockAfter(time.Minute))
	if _, err := fence.Enter(t.Context(), "books", again.Token()); again.Token() > b.late.Token() ||
		!errors.Is(err, fencing.ErrRefused) {
		t.Errorf("a token of %d after one of %d, and the fence says %v", again.Token(), b.late.Token(), err)
	}
	b.sameView()
	var confirmed time.Time
	for i := range b.unlockers { // the first that is restarted learns from the other
		b.waitForConfirmation()
		confirmed = time.Now()
		b.restartUnlocker(i, briefly())
	}
	b.goesOn()
	b.removedOnce(confirmed.Add(short), "dead", "returned")
}

var older = flag.String("etcd-3.6", "", "path of an etcd 3.6")

// TestEtcdIsUpgradedUnderEverybody replaces the program of one member of etcd 3.6 after the other by 3.7, which is how
// etcd expects it done: members of both versions work together meanwhile, with what the older ones know.
func TestEtcdIsUpgradedUnderEverybody(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3, etcdtest.Program(*older))
	s := newScene(t, m.Endpoints()...)
	s.programs()
	s.work(s.client(s.given))
	s.versions(m, "3.6", 0)
	s.stillServed("all old")
	m.Upgrade(0)
	m.WaitReady(t)
	s.versions(m, "3.6", 1)
	s.stillServed("one new")
	s.sameLists(m)
	m.Upgrade(1)
	m.WaitReady(t)
	s.versions(m, "3.6", 2)
	s.sameLists(m)
	m.Upgrade(2)
	m.WaitReady(t)
	s.versions(m, "3.7", 3)
	s.stillServed("all new")
	s.sameLists(m)
	s.removedOnce(time.Time{}, "all old", "one new", "all new")
}

// versions waits until the cluster has this version, and expects this many members of 3.7.
func (s *stage) versions(m *etcdtest.Members, cluster string, upgraded int) {
	s.t.Helper()
	s.until("version "+cluster+" of the cluster", func(ctx context.Context) error {
		if v := version(s.t, m); !strings.HasPrefix(v, cluster+".") {
			return fmt.Errorf("it is %s", v)
		}
		n := 0
		for _, endpoint := range m.Endpoints() {
			status, err := s.direct.Status(ctx, endpoint)
			if err != nil {
				return err
			}
			if strings.HasPrefix(status.Version, "3.7.") {
				n++
			}
		}
		if n != upgraded {
			return fmt.Errorf("%d members are new", n)
		}
		return nil
	})
}

// sameLists expects every member to list the same locks to a reader.
func (s *stage) sameLists(m *etcdtest.Members) {
	s.t.Helper()
	for i := range s.Nodes {
		store := lockstore.New(m.ClientOf(s.t, i), s.layout)
		n := 0
		s.until(fmt.Sprintf("a list of member %d", i), func(ctx context.Context) error {
			n = 0
			_, err := store.ListKeys(ctx, func(kv protocol.KV) {
				if k := s.layout.Parse(kv.Key); k.Kind == protocol.KindField && k.ID == lockrecord.FieldUUID {
					n++
				}
			})
			return err
		})
		if want := len(s.tokens()); n != want {
			s.t.Errorf("member %d lists %d locks of %d", i, n, want)
		}
	}
}
