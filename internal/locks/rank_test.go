package locks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// night is the moment at which these worlds are looked at.
var night = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

// hold is a record with an alert and an auto-unlock so long from now.
func hold(name string, token int64, alert, unlock time.Duration, more ...metadata.Field) *metadata.Record {
	at := func(d time.Duration) string { return metadata.FormatTime(night.Add(d)) }
	fields := append([]metadata.Field{
		{Name: "uuid", Value: fmt.Sprintf("00000000-0000-4000-8000-%012d", token), CreateRevision: token},
		{Name: "owner", Value: "billing"},
		{Name: "locked_at", Value: at(-time.Hour - time.Duration(token)*time.Second)},
		{Name: "alert_at", Value: at(alert)}, {Name: "auto_unlock_at", Value: at(unlock)},
	}, more...)
	r := lockrecord.DecodeRecord(name, fields)
	return &r
}

// permit makes it a permit of a semaphore.
func permit(limit int) metadata.Field {
	return metadata.Field{Name: "metadata", Value: `{"kind":"semaphore","limit":` + strconv.Itoa(limit) + `}`}
}

func waiters(lock string, since ...time.Duration) (queue []metadata.Waiter) {
	for i, d := range since {
		queue = append(queue, metadata.Waiter{Name: lock, ID: fmt.Sprint(lock, i), Revision: int64(i + 1),
			Ticket: metadata.Ticket{Since: metadata.Time{Time: night.Add(-d)}}})
	}
	return queue
}

func snapshot(records []*metadata.Record, queues map[string][]metadata.Waiter) *locks.Snapshot {
	slices.SortFunc(records, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	f := diagnosis.CombinedPolicy{Unlockers: 1, Removes: true}
	return locks.Build(locks.Input{Locks: records, Queues: queues, Combined: f}, staleness.Moment{Wall: night})
}

// Those who wait for a lock that nobody holds count, too.
func TestAllWaitersAreCounted(t *testing.T) {
	s := snapshot([]*metadata.Record{hold("held", 1, time.Hour, 2*time.Hour)}, map[string][]metadata.Waiter{
		"held": waiters("held", time.Minute), "free": waiters("free", time.Hour, time.Minute)})
	if s.Totals.Waiting != 3 || !s.Totals.Longest.Equal(night.Add(-time.Hour)) {
		t.Errorf("%d wait, the longest since %v", s.Totals.Waiting, s.Totals.Longest)
	}
}

func sentence(s *locks.Snapshot) headline.Headline {
	c := headline.InputOf(s, nil, night)
	c.IgnoreUnlockers = true
	return headline.For(c)
}

// Of two late permits that nobody waits for, page and command line once said different things.
func TestLatePermitsAreOneLateLock(t *testing.T) {
	v := sentence(snapshot([]*metadata.Record{hold("pool#1", 1, -5*time.Minute, time.Hour, permit(3)),
		hold("pool#2", 2, -time.Minute, time.Hour, permit(3))}, nil))
	if said := v.String(night); !strings.HasPrefix(said, "One of 2 holders of pool is 5m late") || len(v.More) > 0 {
		t.Errorf("it says %q", said)
	}
}

// The first line of a list is about the lock of the sentence, in every world, and no lock on time is above another one.
func TestFirstLineIsTheLockOfTheSentence(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		span := func() time.Duration { return time.Duration(r.IntN(240)-120) * time.Minute }
		var records []*metadata.Record
		queues := map[string][]metadata.Waiter{}
		for i := range int64(1 + r.IntN(8)) {
			name := "lock-" + strconv.FormatInt(i, 10)
			queue := name
			var more []metadata.Field
			if r.IntN(3) == 0 {
				queue = "pool"
				name = "pool#" + strconv.FormatInt(i+1, 10)
				more = append(more, permit(9))
			}
			alert := span()
			unlock := alert + time.Duration(r.IntN(120))*time.Minute
			switch r.IntN(5) {
			case 0: // expiring
				alert = time.Minute
				unlock = time.Minute
			case 1: // malformed
				more = append(more, metadata.Field{Name: "alive", Value: "soon"})
			}
			records = append(records, hold(name, i+1, alert, unlock, more...))
			if record := records[i]; r.IntN(4) == 0 {
				record.Acknowledgement = &metadata.Acknowledgement{UUID: record.UUID, Token: record.Token,
					Until: metadata.Time{Time: night.Add(time.Hour)}}
			}
			for range r.IntN(3) {
				queues[queue] = append(queues[queue], waiters(queue, time.Duration(r.IntN(60))*time.Minute)...)
			}
		}
		s := snapshot(records, queues)
		v := sentence(s)
		rows := s.InOrder(locks.Order{By: locks.MostUrgent})
		if v.Lock != "" && rows[0].Record.QueueName() != v.Lock && rows[0].Name != v.Lock {
			t.Fatalf("seed %d: the sentence is about %s, the first line about %s: %s", seed, v.Lock, rows[0].Name,
				v.String(night))
		}
		if slices.ContainsFunc(rows, func(r *locks.Row) bool {
			return r.Display == metadata.StateExpiring && r.Class.Section() != locks.ResolvesItself
		}) {
			t.Fatalf("seed %d: an expiring lock does not count as one that resolves itself", seed)
		}
		if !slices.IsSortedFunc(rows, func(a, b *locks.Row) int { return int(a.Class) - int(b.Class) }) {
			t.Fatalf("seed %d: a lock on time is above one that is not", seed)
		}
	}
}
