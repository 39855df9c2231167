package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// invoices is a long job that extends its lock in time: every tenant is progress. Two pods take turns, and one always
// waits.
func (p *pod) invoices(ctx context.Context) error {
	return p.locks.Do(ctx, "billing/invoice-run", p.invoiceTenants, mutex.Purpose("nightly invoices of all tenants"),
		mutex.AlertAfter(p.pace(30*time.Second)), mutex.AutoUnlockAfter(p.pace(5*time.Minute)),
		mutex.Attribute("month", "2026-10"))
}

func (p *pod) invoiceTenants(ctx context.Context) error {
	const tenants = 24
	for i := range tenants {
		if !p.rest(ctx, 5*time.Second) {
			return context.Cause(ctx)
		}
		if err := mutex.FromContext(ctx).Alive(ctx, fmt.Sprintf("tenant %d of %d", i+1, tenants)); err != nil {
			return err
		}
	}
	return nil
}

// imports is a short job that runs again and again, for one shop after the other.
func (p *pod) imports(ctx context.Context) error {
	for _, shop := range []string{"eu", "us", "asia"} {
		if err := p.locks.Do(ctx, "catalog/import/"+shop, p.works(12*time.Second),
			mutex.Purpose("import of the supplier's price list"), mutex.AlertAfter(p.pace(time.Minute))); err != nil {
			return err
		}
		p.rest(ctx, 3*time.Second)
	}
	return nil
}

// rotateKeys hangs while it holds its lock: no progress, no release. The lock alerts and is then auto-unlocked; the
// other pod, which waited, gets it and does the same.
func (p *pod) rotateKeys(ctx context.Context) error {
	return p.locks.Do(ctx, forgottenLock, func(held context.Context) error {
		<-held.Done()
		// A correct program stops here, shortly before another one gets the lock, and releases it. This one waits for
		// an answer that never comes.
		p.rest(ctx, 20*time.Second)
		return context.Cause(held)
	}, mutex.Purpose("rotation of the content keys, step 3: upload to the edge"),
		mutex.AlertAfter(p.pace(20*time.Second)), mutex.AutoUnlockAfter(p.pace(time.Minute)),
		mutex.Attribute("generation", "2026-11"))
}

// reindex hangs, too, but its heartbeat goes on: the lock alerts, and is not removed until its maximum hold. That is
// why calls of Alive belong in the work.
func (p *pod) reindex(ctx context.Context) error {
	return p.locks.Do(ctx, "search/reindex", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, mutex.Purpose("reindex after a change of the mapping"),
		mutex.AlertAfter(p.pace(40*time.Second)), mutex.AutoUnlockAfter(p.pace(3*time.Minute)),
		mutex.Heartbeat(p.pace(15*time.Minute)))
}

// dumps takes a lock without the library, as a shell script with etcdctl would: one key per field, in one transaction.
func (p *pod) dumps(ctx context.Context) error {
	const lock = "nightly/database dump"
	id := uuid.NewString()
	now := time.Now()
	if err := p.put(ctx, lock, map[string]string{
		lockrecord.FieldUUID:         id,
		lockrecord.FieldAlertAt:      metadata.FormatTime(now.Add(p.pace(2 * time.Minute))),
		lockrecord.FieldAutoUnlockAt: metadata.FormatTime(now.Add(p.pace(5 * time.Minute))),
		lockrecord.FieldLockedAt:     metadata.FormatTime(now),
		lockrecord.FieldOwner:        p.owner,
		lockrecord.FieldHostname:     p.host,
		lockrecord.FieldPurpose:      "dump of the main database, by a shell script",
		"script":                     "/opt/dump/dump.sh",
	}); err != nil {
		return err
	}
	p.rest(ctx, 90*time.Second)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	layout := protocol.DefaultLayout()
	_, err := p.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(layout.Field(lock, lockrecord.FieldUUID)), "=", id)).
		Then(clientv3.OpDelete(layout.Record(lock), clientv3.WithPrefix())).
		Commit()
	return err
}

// oldReport is a script written from memory: it holds a lock with unreadable deadlines.
func (p *pod) oldReport(ctx context.Context) error {
	err := p.put(ctx, "reports/weekly", map[string]string{
		lockrecord.FieldUUID:         uuid.NewString(),
		lockrecord.FieldAlertAt:      "soon",
		lockrecord.FieldAutoUnlockAt: "2026-11-21 08:00",
		lockrecord.FieldHostname:     p.host,
		lockrecord.FieldPurpose:      "weekly report",
	})
	p.rest(ctx, time.Hour)
	return err
}

// put writes the record unless the lock is held.
func (p *pod) put(ctx context.Context, lock string, fields map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	layout := protocol.DefaultLayout()
	var puts []clientv3.Op
	for name, value := range fields {
		puts = append(puts, clientv3.OpPut(layout.Field(lock, name), value))
	}
	_, err := p.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(layout.Field(lock, lockrecord.FieldUUID)), "=", 0)).
		Then(puts...).
		Commit()
	return err
}

// killedLock is the lock whose holder is killed, again and again, 15 s after it took it. The witness of this machine
// proves that, and the unlocker frees the lock after the grace of 10 s.
const killedLock = "payments/settlement"

// settlements has a process of its own take the lock, and kills it while it holds it. The process of the other pod
// waits, and gets the lock long before its deadline.
func (p *pod) settlements(ctx context.Context) error {
	holder := p.Holder(p.host)
	in, err := holder.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { fmt.Fprintln(in, "release") })
	defer stop()
	if _, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		p.rest(ctx, 15*time.Second)
	}
	if ctx.Err() == nil {
		_ = holder.Process.Kill()
	}
	return holder.Wait()
}

// holdUntilKilled takes the lock [killedLock], writes a line, and holds the lock until it reads a line or the process
// is killed.
func holdUntilKilled(ctx context.Context, etcd *clientv3.Client, host string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
			os.Exit(1) // mutexdev was killed, and its etcd with it
		}
		cancel()
	}()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "payments", Hostname: host})
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Do(ctx, killedLock, func(ctx context.Context) error {
		fmt.Fprintln(out, "held")
		<-ctx.Done()
		return context.Cause(ctx)
	}, mutex.Purpose("settlement of yesterday's card payments"), mutex.AlertAfter(5*time.Minute),
		mutex.AutoUnlockAfter(20*time.Minute))
}

// transcoders is how many films may be transcoded at once: the permits of a semaphore.
const transcoders = 3

// transcode takes one permit, or two for a long film. Three pods want more than there are, so one always waits.
func (p *pod) transcode(ctx context.Context) error {
	for _, film := range []struct {
		title  string
		weight int
		takes  time.Duration
	}{{"trailer", 1, 15 * time.Second}, {"feature film, 6 renditions", 2, 40 * time.Second}} {
		if err := p.locks.Do(ctx, "media/transcoders", p.works(film.takes), mutex.Semaphore(transcoders),
			mutex.Weight(film.weight), mutex.Purpose(film.title),
			mutex.AlertAfter(p.pace(2*time.Minute))); err != nil {
			return err
		}
		p.rest(ctx, time.Second)
	}
	return nil
}

// searches reads under a read-write lock, together with other readers.
func (p *pod) searches(ctx context.Context) error {
	return p.locks.Do(ctx, "catalog/prices", p.works(18*time.Second), mutex.Shared(),
		mutex.Purpose("search with today's prices"), mutex.AlertAfter(p.pace(time.Minute)))
}

// reprices writes under it: it waits until all readers are done, and later readers wait behind it.
func (p *pod) reprices(ctx context.Context) error {
	err := p.locks.Do(ctx, "catalog/prices", p.works(10*time.Second), mutex.Exclusive(), mutex.Purpose("new prices"),
		mutex.AlertAfter(p.pace(time.Minute)))
	p.rest(ctx, 25*time.Second)
	return err
}

// statistics run once a minute, on whichever pod is first, however long they take.
func (p *pod) statistics(ctx context.Context) error {
	_, err := jobs.OncePer(ctx, p.locks, "reports/statistics", p.pace(time.Minute), p.works(8*time.Second),
		jobs.LockOptions(mutex.Purpose("statistics of the last minute"), mutex.AlertAfter(p.pace(30*time.Second))))
	p.rest(ctx, 4*time.Second)
	return err
}
