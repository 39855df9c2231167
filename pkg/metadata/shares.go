package metadata

import (
	"encoding/json"
	"strconv"
	"strings"
)

// The attributes of records of semaphores and read-write locks.
const (
	AttributeKind    = "kind"    // one of the kinds below
	AttributePermits = "permits" // of a semaphore: how many this holder has
	AttributeLimit   = "limit"   // of a semaphore: the total when this holder took its permits
)

// The kinds of holds that others may share: values of [AttributeKind]. A plain lock has none.
const (
	KindSemaphore = "semaphore" // has permits of a semaphore
	KindShared    = "shared"    // reads under a read-write lock
	KindExclusive = "exclusive" // writes under a read-write lock, or has a whole semaphore
)

// maxShareDigits bounds the number of a share, so that every client can parse it.
const maxShareDigits = 9

// ShareName returns the name of one share of a semaphore or read-write lock, such as "pool#3". Readers that do not
// support shares treat it like any other lock. Shares are numbered from 1.
func ShareName(lock string, number int) string { return lock + "#" + strconv.Itoa(number) }

// ParseShare splits the name of a share into lock and number.
func ParseShare(name string) (lock string, number int, ok bool) {
	i := strings.LastIndexByte(name, '#')
	if i < 1 || i+1 == len(name) || name[i+1] == '0' || len(name)-i-1 > maxShareDigits {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[i+1:], 10, 0) // which takes no sign
	if err != nil {
		return "", 0, false
	}
	return name[:i], int(n), true
}

// Share describes one hold of a semaphore or read-write lock. The zero Share is that of an ordinary lock.
type Share struct {
	LockName       string // of the lock that it is a share of; empty for a hold of the whole lock
	Kind           string // KindSemaphore, KindShared or KindExclusive
	Permits, Limit int    // of a semaphore; 0 = unknown
}

// Share returns what the hold has of a multi-holder lock; the zero Share for an ordinary lock. The name alone does not
// make a share: any lock may be called "build#7".
func (r *Record) Share() Share { return share(r.Name, r.Attributes) }

// Share returns what the hold had of a multi-holder lock, as [Record.Share] does.
func (e *Ending) Share() Share { return share(e.Name, e.Attributes) }

func share(name string, attributes map[string]any) Share {
	kind, _ := attributes[AttributeKind].(string)
	if kind == "" { // an ordinary lock, like most
		return Share{}
	}
	lock, _, numbered := ParseShare(name)
	switch {
	case kind == KindSemaphore && numbered:
		return Share{lock, kind, permits(attributes), wholeNumber(attributes[AttributeLimit])}
	case kind == KindShared && numbered:
		return Share{LockName: lock, Kind: kind}
	case kind == KindExclusive && !numbered:
		return Share{Kind: kind}
	}
	return Share{}
}

// Permits returns how many permits of a semaphore the record holds: 1 if it does not say, 0 if it is unreadable.
func (r *Record) Permits() int { return permits(r.Attributes) }

// QueueName returns the name of the lock whose queue waits for this hold: its own or, for a share, that of the whole
// lock.
func (r *Record) QueueName() string {
	if s := r.Share(); s.LockName != "" {
		return s.LockName
	}
	return r.Name
}

func permits(attributes map[string]any) int {
	v, ok := attributes[AttributePermits]
	if !ok || v == nil {
		return 1
	}
	return wholeNumber(v)
}

// wholeNumber returns 0 for anything but a whole number.
func wholeNumber(v any) int {
	text := ""
	switch v := v.(type) {
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
