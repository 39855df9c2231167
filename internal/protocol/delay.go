package protocol

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MarshalDelay encodes a lock delay as JSON, and shortens what holders wrote so that readers accept it.
func MarshalDelay(d metadata.LockDelay) string {
	value := Marshal(d)
	for most := metadata.MaxTextBytes; len(value) > lockrecord.MaxDelayBytes && most > 0; most /= 2 {
		for _, long := range []*string{&d.Owner, &d.Hostname, &d.Purpose, &d.By, &d.UUID} {
			*long = text.Clip(*long, most)
		}
		value = Marshal(d)
	}
	if len(value) > lockrecord.MaxDelayBytes { // possible only with a name that new locks cannot have
		d.Name = ""
		value = Marshal(d)
	}
	return value
}

// DecodeDelay decodes the delay of a lock or share. A value that cannot be read, or is about another lock, is a delay
// all the same: only the existence of the key counts.
func DecodeDelay(lock string, kv KV) metadata.LockDelay {
	d, err := metadata.LockDelay{}, error(nil)
	if len(kv.Value) <= lockrecord.MaxDelayBytes {
		d, err = Unmarshal[metadata.LockDelay](kv.Value)
	}
	if err != nil || d.Name != lock {
		d = metadata.LockDelay{Name: lock, Unreadable: true}
	}
	cutTexts(&d.UUID, &d.Owner, &d.Hostname, &d.Purpose, &d.By)
	d.Revision = kv.ModRevision
	d.Leased = kv.Lease != 0
	return d
}

// DescribeDelay returns a lock delay as one sentence, which explains why no client takes a free lock: `a lock delay of
// 30s after the hold of "billing" on "host-3", force-unlocked by ann 4s ago, with 0:26 left`. Text from outside is made
// visible.
func DescribeDelay(d *metadata.LockDelay, now time.Time) string {
	if d.Unreadable {
		return "a lock delay after a hold of which nothing is known" + withoutLease(d)
	}
	words := "a lock delay"
	if d.Seconds > 0 {
		words += " of " + text.Duration(time.Duration(d.Seconds)*time.Second)
	}
	words += " after the hold of " + DisplayName(d.Owner)
	if d.Hostname != "" {
		words += " on " + text.Visible(text.Clip(d.Hostname, maxShownBytes))
	}
	how, _ := metadata.EndingWordsFor(d.Cause)
	words += ", " + text.Visible(text.Clip(how.Verb, maxShownBytes))
	if how.Cause == metadata.EndingForced && d.By != "" {
		words += " by " + DisplayName(d.By)
	}
	words += agoText(d.At.Time, now)
	until := d.Until()
	switch left := until.Sub(now); {
	case until.IsZero():
		return words + withoutLease(d)
	case left <= 0:
		return words + ", about to end"
	default:
		return words + ", with " + text.Countdown(left) + " left"
	}
}

// withoutLease returns the end of a sentence about a delay that does not expire.
func withoutLease(d *metadata.LockDelay) string {
	if d.Leased {
		return ""
	}
	return ", without a lease: it stays until an operator ends it"
}

// SourceProgram is the source of an action whose actor a program named, through package inspect.
const SourceProgram = "program"

// ForcedRemoval returns the removal of the hold that an operator saw, with the ending that tells its holder who did it
// and why. delay is how long no client may take the lock afterwards, rounded up to whole seconds.
func ForcedRemoval(r *metadata.Record, a Action, delay time.Duration) lockrecord.Removal {
	why := a.Reason
	if a.Ticket != "" {
		why += " (" + a.Ticket + ")"
	}
	return lockrecord.Removal{
		Record: r, Ending: lockrecord.NewEnding(r, metadata.EndingForced, a.Actor, why, a.At.Time),
		Delay: (delay + time.Second - 1).Truncate(time.Second),
	}
}

// DescribeShare returns what a holder has of a multi-holder lock: "2 of 5 permits", "reader", "exclusive"; empty for an
// ordinary lock.
func DescribeShare(s metadata.Share) string {
	switch {
	case s.Kind == metadata.KindSemaphore && s.Limit > 0:
		return fmt.Sprintf("%d of %s", s.Permits, text.Count(s.Limit, "permit"))
	case s.Kind == metadata.KindSemaphore:
		return text.Count(s.Permits, "permit")
	case s.Kind == metadata.KindShared:
		return "reader"
	}
	return s.Kind
}

// Occupancy is how much of a multi-holder lock is taken.
type Occupancy struct {
	Holders, Readers int
	Permits, Limit   int // of a semaphore; a limit of 0 is unknown
	OtherLimit       int // a different limit that some holder uses; 0 if all agree
}

// OccupancyOf adds up what the holders of a multi-holder lock have.
func OccupancyOf(holders []*metadata.Record) Occupancy {
	u := Occupancy{Holders: len(holders)}
	for _, r := range holders {
		s := r.Share()
		if s.Kind == metadata.KindShared {
			u.Readers++
			continue
		}
		u.Permits += r.Permits()
		if u.Limit != 0 && s.Limit != u.Limit {
			u.OtherLimit = min(u.Limit, s.Limit)
		}
		u.Limit = max(u.Limit, s.Limit)
	}
	return u
}

// Describe returns one sentence: "5 of 8 permits taken by 3 holders, 3 free".
func (u Occupancy) Describe() string {
	switch {
	case u.Readers == u.Holders:
		return text.Count(u.Readers, "reader")
	case u.Limit == 0:
		return text.Count(u.Holders, "holder")
	}
	free := "none"
	if n := u.Limit - u.Permits; n > 0 {
		free = text.Thousands(n)
	}
	return fmt.Sprintf("%s of %s taken by %s, %s free", text.Thousands(u.Permits), text.Count(u.Limit, "permit"),
		text.Count(u.Holders, "holder"), free)
}
