package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// share is how a hold is part of a lock that several can hold: "pool#2" has permits of the semaphore pool, or reads
// under the read-write lock pool.
type share struct {
	lock           string // of which it is a part; empty for one that keeps the whole lock to itself
	kind           string
	permits, limit int // of a semaphore; a limit of 0 is not known
}

// shareOf is nil for an ordinary lock.
func shareOf(r *metadata.Record) *share {
	s := metadata.ShareOf(r.Name, r.Attributes)
	if s.Kind == "" {
		return nil
	}
	return &share{s.Lock, s.Kind, s.Permits, s.Limit}
}

// words say what the holder has: "2 of 5 permits", "reader", "alone"; empty for an ordinary lock.
func (s *share) words() string {
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

// queue is the name of the lock in whose line those wait who want what the record holds.
func (s *share) queue(name string) string {
	if s == nil || s.lock == "" {
		return name
	}
	return s.lock
}

// shares are the rows of those who share the lock now.
func (s *snapshot) shares(lock string) []*row {
	if len(lock) > metadata.MaxNameBytes {
		return nil
	}
	place := func(name string) int {
		i, _ := slices.BinarySearchFunc(s.rows, name,
			func(r *row, name string) int { return strings.Compare(r.Name, name) })
		return i
	}
	var found []*row
	for _, r := range s.rows[place(lock+"#1"):place(lock+"#:")] { // ":" follows "9"
		if r.share != nil && r.share.lock == lock {
			found = append(found, r)
		}
	}
	return found
}

// holders are the rows of those who hold the lock, alone or together.
func (s *snapshot) holders(lock string) []*row {
	if r := s.find(lock); r != nil {
		return append([]*row{r}, s.shares(lock)...)
	}
	return s.shares(lock)
}

// use is how far a lock that several can hold is taken.
type use struct {
	holders, readers int
	permits, limit   int // of a semaphore; a limit of 0 is not known
	look             look
	oldest           time.Time
	otherLimit       int // another one that a holder believes in; 0: they agree
}

func useOf(holders []*row) use {
	u := use{look: held}
	for _, r := range holders {
		u.holders++
		if r.share != nil && r.share.kind == metadata.HoldsShared {
			u.readers++
		}
		if r.share != nil && r.share.kind == metadata.HoldsPermits {
			u.permits += r.share.permits
			if u.limit != 0 && r.share.limit != u.limit {
				u.otherLimit = min(u.limit, r.share.limit)
			}
			u.limit = max(u.limit, r.share.limit)
		}
		if r.look.urgency() < u.look.urgency() {
			u.look = r.look
		}
		u.oldest = first(u.oldest, r.LockedAt)
	}
	return u
}

// words say it: "5 of 8 permits taken by 3 holders, 3 free".
func (u use) words() string {
	switch {
	case u.readers == u.holders:
		return phrase.Plural(u.readers, "reader", "readers")
	case u.limit == 0:
		return phrase.Plural(u.holders, "holder", "holders")
	}
	text := fmt.Sprintf("%s of %s taken by %s, ", phrase.Thousands(u.permits), phrase.Plural(u.limit, "permit", "permits"),
		phrase.Plural(u.holders, "holder", "holders"))
	if free := u.limit - u.permits; free > 0 {
		return text + phrase.Thousands(free) + " free"
	}
	return text + "none free"
}
