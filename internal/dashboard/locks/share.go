package locks

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Share is how the hold is part of a lock that several can hold; the zero one for an ordinary one.
func (r *Row) Share() metadata.Share { return metadata.ShareOf(r.Name, r.Attributes) }

// Shares are the rows of those who share the lock now.
func (s *Snapshot) Shares(lock string) []*Row {
	if len(lock) > metadata.MaxNameBytes {
		return nil
	}
	var found []*Row
	from, _ := rowNamed(s.Rows, lock+"#1")
	to, _ := rowNamed(s.Rows, lock+"#:") // ":" follows "9"
	for _, r := range s.Rows[from:to] {
		if r.Share().Lock == lock {
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

// Use is how far a lock that several can hold is taken, and what is the matter with its holders.
type Use struct {
	protocol.Use
	Display DisplayState
	Oldest  time.Time
}

func UseOf(holders []*Row) Use {
	u := Use{Display: Held}
	records := make([]*metadata.Record, len(holders))
	for i, r := range holders {
		records[i] = r.Record
		if r.Display.Urgency() < u.Display.Urgency() {
			u.Display = r.Display
		}
		u.Oldest = protocol.Earlier(u.Oldest, r.LockedAt)
	}
	u.Use = protocol.UseOf(records)
	return u
}
