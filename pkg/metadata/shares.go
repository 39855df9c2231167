package metadata

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Attributes of the records of locks that several can hold: semaphores and read-write locks.
const (
	AttributeKind    = "kind"    // one of the kinds below
	AttributePermits = "permits" // of a semaphore: how many this holder has
	AttributeLimit   = "limit"   // of a semaphore: how many there were for all when this holder took its own
)

// The kinds of holders, as values of that attribute.
const (
	HoldsPermits   = "semaphore" // has permits of a semaphore
	HoldsShared    = "shared"    // reads under a read-write lock
	HoldsExclusive = "exclusive" // writes under it, or keeps a semaphore to itself
)

// maxShareDigits bounds the number of a share, so that it can be read everywhere.
const maxShareDigits = 9

// ShareName is the name of one share of a lock that several can hold, "pool#3". To readers that know no shares it is a
// lock like any other. Shares are numbered from 1.
func ShareName(lock string, number int) string { return lock + "#" + strconv.Itoa(number) }

// ParseShare reads the name of a share.
func ParseShare(name string) (lock string, number int, ok bool) {
	i := strings.LastIndexByte(name, '#')
	if i < 1 || i+1 == len(name) || name[i+1] == '0' || len(name)-i-1 > maxShareDigits {
		return "", 0, false
	}
	for _, c := range []byte(name[i+1:]) {
		if c < '0' || c > '9' {
			return "", 0, false
		}
		number = number*10 + int(c-'0')
	}
	return name[:i], number, true
}

// Share is what one hold has of a lock that several can hold. The zero Share is an ordinary lock.
type Share struct {
	Lock           string // of which it is a share; empty for a hold that has the whole lock to itself
	Kind           string // HoldsPermits, HoldsShared or HoldsExclusive
	Permits, Limit int    // of a semaphore; 0 is not known
}

// ShareOf reads the share from the name and attributes of a record or an ending. A name alone makes no share: any lock
// may be called "build#7".
func ShareOf(name string, attributes map[string]any) Share {
	kind, _ := attributes[AttributeKind].(string)
	lock, _, numbered := ParseShare(name)
	switch {
	case kind == HoldsPermits && numbered:
		return Share{lock, kind, permits(attributes), wholeNumber(attributes[AttributeLimit])}
	case kind == HoldsShared && numbered:
		return Share{Lock: lock, Kind: kind}
	case kind == HoldsExclusive && !numbered:
		return Share{Kind: kind}
	}
	return Share{}
}

// Permits is how many permits of a semaphore the record holds: 1 unless it says another number, 0 if that cannot be
// read.
func (r *Record) Permits() int { return permits(r.Attributes) }

// Queue is the name of the lock in whose queue others wait for what the record holds: its own, or that of the lock of
// which it is a share.
func (r *Record) Queue() string {
	if s := ShareOf(r.Name, r.Attributes); s.Lock != "" {
		return s.Lock
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

// wholeNumber is 0 for what is none.
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
