package locks

import (
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Share is how a hold is part of a lock that several can hold: "pool#2" has permits of the semaphore pool, or reads
// under the read-write lock pool.
type Share struct {
	Lock           string // of which it is a part; empty for one that keeps the whole lock to itself
	kind           string
	permits, limit int // of a semaphore; a limit of 0 is not known
}

// ShareOf is nil for an ordinary lock.
func ShareOf(name string, attributes map[string]any) *Share {
	s := metadata.ShareOf(name, attributes)
	if s.Kind == "" {
		return nil
	}
	return &Share{s.Lock, s.Kind, s.Permits, s.Limit}
}

// Words say what the holder has: "2 of 5 permits", "reader", "alone"; empty for an ordinary lock.
func (s *Share) Words() string {
	switch {
	case s == nil:
		return ""
	case s.kind == metadata.HoldsShared:
		return "reader"
	case s.kind == metadata.HoldsExclusive:
		return "exclusive"
	case s.limit > 0:
		return fmt.Sprintf("%d of %d permits", s.permits, s.limit)
	}
	return phrase.Plural(s.permits, "permit", "permits")
}

// QueueName is the name of the lock whose queue has the waiters for what the record holds.
func (s *Share) QueueName(name string) string {
	if s == nil || s.Lock == "" {
		return name
	}
	return s.Lock
}

// Shares are the rows of those who share the lock now.
func (s *Snapshot) Shares(lock string) []*Row {
	if len(lock) > metadata.MaxNameBytes {
		return nil
	}
	var found []*Row
	from, _ := rowNamed(s.Rows, lock+"#1")
	to, _ := rowNamed(s.Rows, lock+"#:") // ":" follows "9"
	for _, r := range s.Rows[from:to] {
		if r.Share != nil && r.Share.Lock == lock {
			found = append(found, r)
		}
	}
	return found
}

// Holders are the rows of those who hold the lock, alone or together.
func (s *Snapshot) Holders(lock string) []*Row {
	if r := s.Find(lock); r != nil {
		return append([]*Row{r}, s.Shares(lock)...)
	}
	return s.Shares(lock)
}

// Use is how far a lock that several can hold is taken.
type Use struct {
	Holders, readers int
	Permits, Limit   int // of a semaphore; a limit of 0 is not known
	Display          DisplayState
	Oldest           time.Time
	OtherLimit       int // another one that a holder believes in; 0: they agree
}

func UseOf(holders []*Row) Use {
	u := Use{Display: Held}
	for _, r := range holders {
		u.Holders++
		if r.Share != nil && r.Share.kind == metadata.HoldsShared {
			u.readers++
		}
		if r.Share != nil && r.Share.kind == metadata.HoldsPermits {
			u.Permits += r.Share.permits
			if u.Limit != 0 && r.Share.limit != u.Limit {
				u.OtherLimit = min(u.Limit, r.Share.limit)
			}
			u.Limit = max(u.Limit, r.Share.limit)
		}
		if r.Display.Urgency() < u.Display.Urgency() {
			u.Display = r.Display
		}
		u.Oldest = Earlier(u.Oldest, r.LockedAt)
	}
	return u
}

// Words say it: "5 of 8 permits taken by 3 holders, 3 free".
func (u Use) Words() string {
	switch {
	case u.readers == u.Holders:
		return phrase.Plural(u.readers, "reader", "readers")
	case u.Limit == 0:
		return phrase.Plural(u.Holders, "holder", "holders")
	}
	said := fmt.Sprintf("%s of %s taken by %s, ", text.Thousands(u.Permits),
		phrase.Plural(u.Limit, "permit", "permits"),
		phrase.Plural(u.Holders, "holder", "holders"))
	if free := u.Limit - u.Permits; free > 0 {
		return said + text.Thousands(free) + " free"
	}
	return said + "none free"
}
