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
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var etcdutl = flag.String("etcdutl", "", "path of etcd's own tool for backups")

// life is that of holds whose holders are gone for good. They still exist when the backup is restored.
const life = 10 * time.Second

// backup is an etcd that is backed up and restored under its clients.
type backup struct {
	*stage
	etcd  *etcdtest.Server
	file  string
	had   map[string]int64 // the holds in the backup
	locks *mutex.Client

	kept, late *mutex.Lock // held when the backup was made and ever since; taken since
	// who waited for the lock of a dead holder when the backup was made; who did so since
	early, tardy <-chan *mutex.Lock
}

// newBackup starts an etcd that had this many elections, and its clients. A restored one starts with the first.
func newBackup(t *testing.T, elections int, flags ...string) *backup {
	t.Helper()
	b := &backup{etcd: etcdtest.Start(t)}
	for range elections {
		b.etcd.Restart(t)
	}
	b.stage = newScene(t, b.etcd.Endpoint())
	b.file = filepath.Join(b.dir, "backup.db")
	b.locks = b.locker("billing")
	b.programs(flags...)
	return b
}

func (b *backup) take(lock string, opts ...mutex.Option) *mutex.Lock {
	b.t.Helper()
	ctx, cancel := timeout(40 * time.Second)
	defer cancel()
	l, err := b.locks.Lock(ctx, lock, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// make makes the backup while everything runs, and goes on for a while.
func (b *backup) make() {
	b.t.Helper()
	b.kept = b.take("kept", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(time.Minute))
	returned := b.take("returned", mutex.AutoUnlockAfter(life))
	b.stale("dead", life)
	b.early = b.wait(b.locks, "dead", 1)
	b.had = b.tokens()
	b.save()
	b.tardy = b.wait(b.locks, "dead", 2)
	for _, l := range []*mutex.Lock{returned, b.take("passing"), b.take("passing too")} {
		if err := l.Unlock(); err != nil {
			b.t.Fatal(err)
		}
	}
	for range 1000 { // what others do: more than is done in the first seconds after a restore
		if _, err := b.direct.Put(context.Background(), "/elsewhere", ""); err != nil {
			b.t.Fatal(err)
		}
	}
	b.late = b.take("late", mutex.AutoUnlockAfter(time.Minute))
}

func (b *backup) save() {
	b.t.Helper()
	ctx, cancel := timeout(20 * time.Second)
	defer cancel()
	from, err := b.direct.Snapshot(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// restore replaces etcd's data by the backup, and returns when etcd was last unavailable.
func (b *backup) restore(flags ...string) (away time.Time) {
	b.t.Helper()
	b.etcd.Stop()
	if err := os.RemoveAll(b.etcd.Dir()); err != nil {
		b.t.Fatal(err)
	}
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

// goesOn expects all clients to continue after a restore: first those that waited before the backup was made, then
// those that came later.
func (b *backup) goesOn() {
	b.t.Helper()
	before := b.kept.Token()
	for _, waiter := range []<-chan *mutex.Lock{b.early, b.tardy} {
		select {
		case l := <-waiter:
			if l.Token() <= before {
				b.t.Errorf("a token of %d after one of %d", l.Token(), before)
			}
			before = l.Token()
			if err := l.Unlock(); err != nil {
				b.t.Error(err)
			}
		case <-time.After(40 * time.Second):
			b.t.Fatal("the waiter does not get the lock of the dead holder")
		}
	}
	b.gone("dead", "returned")
	if err := b.kept.Alive(context.Background()); err != nil {
		b.t.Error(err)
	}
	if err := b.kept.Unlock(); err != nil {
		b.t.Error(err)
	}
	b.shown()
}

// asDocumented are the flags with which docs/operations.md restores a backup.
func asDocumented() []string { return []string{"--bump-revision=1000000000", "--mark-compacted"} }

// short is the warning of unlockers where no holder needs a longer one.
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
	b.shown()
	for _, p := range b.unlockers {
		b.listsAgain(p)
	}
	if next := b.take("late"); next.Token() < 1_000_000_000 {
		t.Errorf("a token of %d after one of %d", next.Token(), b.late.Token())
	}
	b.goesOn()
	b.nobodyLost()
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
	b.t.Helper()
	b.until("the watch of "+unlocker.name+" to end", func(ctx context.Context) error {
		body, err := fetch(ctx, b.addrs[unlocker], "/metrics")
		if err != nil {
			return err
		}
		for _, reason := range []string{lockstore.ReasonCompacted, lockstore.ReasonSilent, lockstore.ReasonConnection} {
			if n, _ := sample(string(body), fmt.Sprintf("unlocker_watch_restarts_total{reason=%q}", reason)); n > 0 {
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

// waitForConfirmation expects both unlockers to remove nothing and to say why.
func (b *backup) waitForConfirmation() {
	b.t.Helper()
	for _, p := range b.unlockers {
		b.heldBack(p, staleness.Revision, 2)
		if !says(b.t, p, "etcd went back to an older state") {
			b.t.Errorf("%s does not say what happened", p.name)
		}
	}
	b.removedOnce(time.Time{})
}

// TestARestoreWithoutRaisedRevisionsWaitsForRestarts restores a backup without what docs/operations.md wants, and then
// does what it says about that.
func TestARestoreWithoutRaisedRevisionsWaitsForRestarts(t *testing.T) {
	t.Parallel()
	b := newBackup(t, 0, briefly())
	b.make()
	fence := fencing.NewMemory(0)
	leave, err := fence.Enter(t.Context(), "books", b.late.Token())
	if err != nil {
		t.Fatal(err)
	}
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
	b.shown()
	var confirmed time.Time
	for i := range b.unlockers { // the first that is restarted learns from the other
		b.waitForConfirmation()
		confirmed = time.Now()
		b.restartUnlocker(i, briefly())
	}
	b.goesOn()
	b.removedOnce(confirmed.Add(short), "dead", "returned")
}
