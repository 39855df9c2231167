package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MarshalDelay writes a delay, and shortens what holders wrote so that readers accept it.
func MarshalDelay(d metadata.Delay) string {
	value := Marshal(d)
	for most := metadata.MaxTextBytes; len(value) > metadata.MaxDelayBytes && most > 0; most /= 2 {
		for _, long := range []*string{&d.Owner, &d.Hostname, &d.Purpose, &d.By, &d.UUID} {
			*long = text.Clip(*long, most)
		}
		value = Marshal(d)
	}
	if len(value) > metadata.MaxDelayBytes { // possible only with a name that new locks cannot have
		d.Lock = ""
		value = Marshal(d)
	}
	return value
}

// ReadDelay reads the delay of a lock or share. A value that cannot be read, or is about another lock, is a delay all
// the same: only the existence of the key counts.
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

// DelayWords says why no client takes a free lock: `a lock delay of 30s after the hold of "billing" on "host-3",
// force-unlocked by ann 4s ago, with 0:26 left`. Text from outside is made visible.
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
	return ", without a lease: it stays until an operator ends it"
}

// SourceProgram is the source of an action whose actor a program named, through package inspect.
const SourceProgram = "program"

// Forced returns the removal of the hold that an operator saw, with the ending that tells its holder who did it and
// why. delay is how long no client may take the lock afterwards, rounded up to whole seconds.
func Forced(r *metadata.Record, a Action, delay time.Duration) metadata.Removal {
	why := a.Reason
	if a.Ticket != "" {
		why += " (" + a.Ticket + ")"
	}
	return metadata.Removal{
		Record: r, Ending: metadata.NewEnding(r, metadata.EndedForced, a.Actor, why, a.At.Time),
		Delay: (delay + time.Second - 1).Truncate(time.Second),
	}
}

// CheckOperator returns an error, a sentence, unless the name of an operator is one line of text.
func CheckOperator(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("the name of an operator is needed: history and audit trail keep it")
	case !isLine(name):
		return fmt.Errorf("the name of the operator must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}
