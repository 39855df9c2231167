package mutex

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fewHolders is how many of many holders are named in a line.
const fewHolders = 3

// sharing is one line: why a lock that several can hold has no room, or who is ahead.
func (e *HeldError) sharing() string {
	line := fmt.Sprintf("lock %q is %s by ", e.Lock, e.manner())
	queue := ", but others queue for it"
	room := len(e.Holders) == 0 || e.Kind == metadata.HoldsShared && e.manner() == "read"
	if e.Kind == metadata.HoldsPermits {
		free := fmt.Sprintf("semaphore %q: %d of %s free", e.Lock, e.Free, plural(e.Limit, "permit"))
		line = fmt.Sprintf("%s, %d wanted; held by ", free, e.Weight)
		queue = ""
		if room = e.Free >= e.Weight; room {
			return free + ", but others queue for them"
		}
	}
	switch {
	case len(e.Holders) == 0:
		return fmt.Sprintf("lock %q is free%s", e.Lock, queue)
	case len(e.Holders) == 1:
		line += describe(&e.Holders[0].Record, e.At)
	default:
		line += e.several()
	}
	if room {
		return line + queue
	}
	return line
}

// manner is how the lock is held.
func (e *HeldError) manner() string {
	if len(e.Holders) > 0 && e.Holders[0].Attributes[metadata.AttributeKind] == metadata.HoldsShared {
		return "read"
	}
	return "held"
}

// several names a few of the holders, and says when the next of them is auto-unlocked.
func (e *HeldError) several() string {
	var named []string
	for i := range min(len(e.Holders), fewHolders) {
		named = append(named, describeHolder(&e.Holders[i].Record, e.At))
	}
	if more := len(e.Holders) - fewHolders; more > 0 {
		named = append(named, plural(more, "other"))
	}
	var next time.Time
	for i := range e.Holders {
		if at := e.Holders[i].AutoUnlockAt; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	line := strings.Join(named[:len(named)-1], ", ") + " and " + named[len(named)-1]
	return line + "; " + due(next, e.At, "the first of them is auto-unlocked",
		"the auto-unlock of the first of them was due",
		"none of them has a readable time of auto-unlock")
}

// plural is "1 permit" or "2 permits".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
