package protocol

import (
	"fmt"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ShareWords say what a holder has of a lock that several can hold: "2 of 5 permits", "reader", "exclusive"; empty for
// an ordinary lock.
func ShareWords(s metadata.Share) string {
	switch {
	case s.Kind == metadata.HoldsPermits && s.Limit > 0:
		return fmt.Sprintf("%d of %s", s.Permits, text.Count(s.Limit, "permit"))
	case s.Kind == metadata.HoldsPermits:
		return text.Count(s.Permits, "permit")
	case s.Kind == metadata.HoldsShared:
		return "reader"
	}
	return s.Kind
}

// Use is how far a lock that several can hold is taken.
type Use struct {
	Holders, Readers int
	Permits, Limit   int // of a semaphore; a limit of 0 is not known
	OtherLimit       int // another one that a holder believes in; 0: they agree
}

// UseOf returns what the holders of a lock take together.
func UseOf(holders []*metadata.Record) Use {
	u := Use{Holders: len(holders)}
	for _, r := range holders {
		s := metadata.ShareOf(r.Name, r.Attributes)
		if s.Kind == metadata.HoldsShared {
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

// Words say it: "5 of 8 permits taken by 3 holders, 3 free".
func (u Use) Words() string {
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
