package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

var errNoLocks = errors.New("no lock client was given")

// Period is a period in which a job ran.
type Period struct {
	Start time.Time
	Note  string // who took it and when, as text
}

// LastPeriod returns the last period in which [OncePer] ran the job of this name. Its Start is zero if there is none.
func LastPeriod(ctx context.Context, locks *mutex.Client, name string) (Period, error) {
	r, err := periodRequest(ctx, locks, name, locktxn.ReadPeriod)
	if err != nil {
		return Period{}, err
	}
	kvs := r.Keys(0).Kvs
	if len(kvs) == 0 {
		return Period{}, nil
	}
	p, err := protocol.ParsePeriod(string(kvs[0].Value))
	if err != nil {
		return Period{}, fmt.Errorf("period of %q: %w", name, err)
	}
	return Period{Start: p.Start, Note: p.Note}, nil
}

// ResetPeriod forgets the last period of the job of this name, so that the next [OncePer] runs it, even in the same
// period. It undoes the effect of a wrong clock.
func ResetPeriod(ctx context.Context, locks *mutex.Client, name string) error {
	_, err := periodRequest(ctx, locks, name, func(l protocol.Layout, name string) locktxn.Txn {
		return locktxn.Txn{Then: []clientv3.Op{clientv3.OpDelete(l.Period(name))}}
	})
	return err
}

func periodRequest(ctx context.Context, locks *mutex.Client, name string,
	txn func(protocol.Layout, string) locktxn.Txn) (etcdretry.Response, error) {
	err := metadata.CheckName(name)
	if locks == nil {
		err = errNoLocks
	}
	if err != nil {
		return etcdretry.Response{}, fmt.Errorf("period of %q: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, locks.Options().RequestTimeout)
	defer cancel()
	r, err := locks.Internals().Retry().Send(ctx, txn(locks.Internals().Layout(), name))
	if err != nil {
		return r, fmt.Errorf("period of %q: %w", name, err)
	}
	return r, nil
}

// PeriodError means that a job cannot run, because a period ahead of this machine's clock is taken: either this clock
// is behind, or the clock of the client that took the period was ahead. Until a caller's clock reaches that period the
// job does not run, unless [ResetPeriod] is called.
type PeriodError struct {
	Name  string    // of the job and its lock
	Start time.Time // of the period that the caller wanted
	Last  Period    // that was taken
	At    time.Time // wall clock of this process
	Key   string    // in etcd: deleting it resets the job
}

// Error says which period is taken and how to reset it, in one line.
func (e *PeriodError) Error() string {
	return fmt.Sprintf("once %q: the period of %s is %s ahead of this machine's clock, and it was %s; "+
		"earlier periods run only if its key %s is deleted",
		e.Name, instant(e.Last.Start), text.DurationWords(e.Last.Start.Sub(e.At)), quoted(e.Last.Note), e.Key)
}

// ClockError means that a job does not run, because this machine's clock is ahead of those of all running unlockers:
// the period would be used up before it began.
type ClockError struct {
	Name     string            // of the job and its lock
	Start    time.Time         // of the period that the caller wanted
	Unlocker metadata.Presence // whose clock is furthest ahead
	At       time.Time         // wall clock of this process
}

// Error compares the clocks in one line.
func (e *ClockError) Error() string {
	return fmt.Sprintf("once %q: by the clock of unlocker %s it is %s, and the period of %s has not begun; "+
		"this machine's clock says %s",
		e.Name, quoted(e.Unlocker.ID), instant(e.Unlocker.Now.Time), instant(e.Start), instant(e.At))
}

// instant formats a time in full, so that clocks can be compared.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// quoted makes text from outside harmless in a sentence.
func quoted(s string) string {
	const maxBytes = 120
	return text.Visible(text.Clip(s, maxBytes))
}
