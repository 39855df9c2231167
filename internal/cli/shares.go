package cli

import (
	"cmp"
	"fmt"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// use is how much of a semaphore or read-write lock is taken.
type use struct {
	kind                    string
	holders, permits, limit int
}

func useOf(holders []*metadata.Record) use {
	u := use{holders: len(holders)}
	for _, r := range holders {
		share := metadata.ShareOf(r.Name, r.Attributes)
		u.kind = cmp.Or(u.kind, share.Kind)
		u.limit = max(u.limit, share.Limit)
		u.permits += r.Permits()
	}
	return u
}

// text is, for example, "semaphore, 5 of 8 permits taken by 3 holders, 3 free".
func (u use) text() string {
	switch {
	case u.kind == metadata.HoldsShared:
		return "read-write lock, " + text.Count(u.holders, "reader")
	case u.limit == 0:
		return text.Count(u.holders, "holder")
	}
	return fmt.Sprintf("semaphore, %d of %s taken by %s, %d free", u.permits, text.Count(u.limit, "permit"),
		text.Count(u.holders, "holder"), u.free(u.limit))
}

func (u use) free(limit int) int { return max(limit-u.permits, 0) }
