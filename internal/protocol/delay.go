package protocol

import (
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MarshalDelay writes a delay, and shortens what holders wrote until readers read it.
func MarshalDelay(d metadata.Delay) string {
	value := Marshal(d)
	for most := metadata.MaxTextBytes; len(value) > metadata.MaxDelayBytes && most > 0; most /= 2 {
		for _, long := range []*string{&d.Owner, &d.Hostname, &d.Purpose, &d.By, &d.UUID} {
			*long = text.Clip(*long, most)
		}
		value = Marshal(d)
	}
	if len(value) > metadata.MaxDelayBytes { // a name that is refused for new locks
		d.Lock = ""
		value = Marshal(d)
	}
	return value
}

// ReadDelay reads the delay of a lock or share. What cannot be read, or is about another lock, is a delay all the same:
// only the existence of the key counts.
func ReadDelay(lock string, kv KV) metadata.Delay {
	d, err := metadata.Delay{}, error(nil)
	if len(kv.Value) <= metadata.MaxDelayBytes {
		d, err = Unmarshal[metadata.Delay](kv.Value)
	}
	if err != nil || d.Lock != lock {
		d = metadata.Delay{Lock: lock, Unreadable: true}
	}
	d.Revision = kv.ModRevision
	d.Leased = kv.Lease != 0
	return d
}

// DelayWords says why nobody takes a lock that nobody holds: `a lock delay of 30s after the hold of "billing" on
// "host-3", force-unlocked by ann 4s ago, with 0:26 left`. The text in it is made visible.
func DelayWords(d *metadata.Delay, now time.Time) string {
	if d.Unreadable {
		return "a lock delay after a hold of which nothing is known" + unended(d)
	}
	words := "a lock delay"
	if d.Seconds > 0 {
		words += " of " + text.Duration(time.Duration(d.Seconds)*time.Second)
	}
	words += " after the hold of " + Person(d.Owner)
	if d.Hostname != "" {
		words += " on " + text.Visible(text.Clip(d.Hostname, maxShown))
	}
	how, _ := metadata.EndingOf(d.Ended)
	words += ", " + text.Visible(text.Clip(how.Verb, maxShown))
	if how.Ended == metadata.EndedForced && d.By != "" {
		words += " by " + Person(d.By)
	}
	words += since(d.At.Time, now)
	until := d.Until()
	switch left := until.Sub(now); {
	case until.IsZero():
		return words + unended(d)
	case left <= 0:
		return words + ", about to end"
	default:
		return words + ", with " + text.Countdown(left) + " left"
	}
}

func unended(d *metadata.Delay) string {
	if d.Leased {
		return ""
	}
	return ", without a lease: it stays until somebody ends it"
}
