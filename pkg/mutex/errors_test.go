package mutex_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestRefusalsInWords(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	by := func(owner string, alert, autoUnlock time.Duration) metadata.Document {
		return metadata.Document{Record: metadata.Record{Token: 7, Holder: metadata.Holder{Owner: owner},
			AlertAt: now.Add(alert), AutoUnlockAt: now.Add(autoUnlock)}}
	}
	told := by("a", 10*time.Minute, 2*time.Hour)
	told.Hostname, told.PID = "h", 7
	told.Purpose, told.LockedAt = "x", now.Add(-10*time.Minute)
	reader := by("r", time.Minute, 2*time.Minute)
	reader.Attributes = map[string]any{metadata.AttributeKind: metadata.HoldsShared}
	several := []metadata.Document{by("a", time.Hour, 3*time.Hour), by("b", time.Hour, 2*time.Hour),
		by("c", time.Hour, 4*time.Hour)}
	five := append(several, by("d", time.Hour, 5*time.Hour), by("e", time.Hour, 6*time.Hour))
	delay := &metadata.Delay{Owner: "a", Hostname: "h", At: metadata.Time{Time: now}, Seconds: 60, Leased: true}
	odd := metadata.Document{Record: metadata.Record{Token: 7, Holder: metadata.Holder{Owner: "\x1b[31m\n\u202e",
		Hostname: strings.Repeat("h", 9999), Purpose: "\"\n"}}}
	for _, c := range []struct {
		e    mutex.HeldError
		want string
	}{
		{mutex.HeldError{Holder: told}, `lock "l" is held by a on h (pid 7), taken 10 minutes ago for "x"; ` +
			`alert in 10 minutes, auto-unlock in 2 hours`},
		{mutex.HeldError{Holder: by("a", 10*time.Minute, 2*time.Hour)},
			`lock "l" is held by a; alert in 10 minutes, auto-unlock in 2 hours`},
		{mutex.HeldError{Holder: by("a", -10*time.Minute, -2*time.Hour)},
			`lock "l" is held by a; alerted 10 minutes ago, auto-unlock was due 2 hours ago`},
		{mutex.HeldError{Holder: by("a", 2*time.Hour, 5*time.Minute)},
			`lock "l" is held by a; unless extended, it alerts and is auto-unlocked in 5 minutes`},
		{mutex.HeldError{Holder: odd}, `lock "l" is held by \x1b[31m\n\u202e on ` + strings.Repeat("h", 120) +
			`… for "\"\n"; no readable alert time, no readable auto-unlock time`},
		{mutex.HeldError{Holder: by("a", time.Minute, time.Hour), Where: "x.go:7", Position: 2, Err: context.Canceled},
			`context canceled: lock "l" is held by a; alert in 60 seconds, auto-unlock in 60 minutes; ` +
				`this very process took it at x.go:7; position 2 in the queue`},
		{mutex.HeldError{Position: 2}, `lock "l" is free, but others queue for it; position 2 in the queue`},
		{mutex.HeldError{Delay: delay}, `nobody holds lock "l"; a lock delay after the hold of a on h lasts until ` +
			`2027-01-15T08:01:00Z, in 60 seconds`},
		{mutex.HeldError{Delay: &metadata.Delay{Unreadable: true}},
			`nobody holds lock "l"; a lock delay stands until somebody ends it`},
		{mutex.HeldError{Kind: metadata.HoldsPermits, Holders: five, Limit: 5, Weight: 1, Where: "x.go:7"},
			`semaphore "l": 0 of 5 permits free, 1 wanted; held by a, b, c and 2 others; ` +
				`the first of them is auto-unlocked in 2 hours`},
		{mutex.HeldError{Kind: metadata.HoldsPermits, Holders: several[:1], Limit: 2, Free: 1, Weight: 1},
			`semaphore "l": 1 of 2 permits free, but others queue for them`},
		{mutex.HeldError{Kind: metadata.HoldsPermits, Holders: several[:1], Limit: 2, Free: 1, Weight: 2, Delay: delay},
			`semaphore "l": 1 of 2 permits free, 2 wanted; held by a; alert in 60 minutes, auto-unlock in 3 hours; ` +
				`a lock delay after the hold of a on h lasts until 2027-01-15T08:01:00Z, in 60 seconds`},
		{mutex.HeldError{Kind: metadata.HoldsShared, Holders: []metadata.Document{reader}},
			`lock "l" is read by r; alert in 60 seconds, auto-unlock in 2 minutes, but others queue for it`},
		{mutex.HeldError{Kind: metadata.HoldsExclusive, Holders: []metadata.Document{reader, several[1]}},
			`lock "l" is read by r and b; the first of them is auto-unlocked in 2 minutes`},
		{mutex.HeldError{Kind: metadata.HoldsExclusive, Delay: delay}, `nobody holds lock "l"; a lock delay after ` +
			`the hold of a on h lasts until 2027-01-15T08:01:00Z, in 60 seconds`},
		{mutex.HeldError{Kind: metadata.HoldsExclusive}, `lock "l" is free, but others queue for it`},
	} {
		c.e.Lock = "l"
		c.e.At = now
		if got := c.e.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	asked := &mutex.AskedError{Lock: "l", Request: metadata.Request{By: "\x1b[2J",
		Reason: strings.Repeat("\u202e\n", 300)}}
	if said := asked.Error(); strings.ContainsAny(said, "\n\x1b\u202e") || len(said) > 2000 {
		t.Errorf("%q", said)
	}
}
