package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// shareWords is what a holder has of a lock that several can hold: "2 of 5 permits", "reader", "exclusive"; empty for
// an ordinary lock.
func shareWords(s metadata.Share) string {
	switch {
	case s.Kind == metadata.HoldsPermits && s.Limit > 0:
		return fmt.Sprintf("%d of %s", s.Permits, count(s.Limit, "permit"))
	case s.Kind == metadata.HoldsPermits:
		return count(s.Permits, "permit")
	case s.Kind == metadata.HoldsShared:
		return "reader"
	}
	return s.Kind
}

// sharesOf are the records of the shares of a lock, out of records sorted by name. Only the names count, as for clients
// that take a share.
func sharesOf(lock string, all []*metadata.Record) []*metadata.Record {
	var shares []*metadata.Record
	from, _ := slices.BinarySearchFunc(all, lock+"#",
		func(r *metadata.Record, name string) int { return cmp.Compare(r.Name, name) })
	for _, r := range all[from:] {
		if !strings.HasPrefix(r.Name, lock+"#") {
			break
		}
		if of, _, ok := metadata.ParseShare(r.Name); ok && of == lock && r.Token != 0 {
			shares = append(shares, r)
		}
	}
	slices.SortFunc(shares, func(a, b *metadata.Record) int { return cmp.Compare(a.Token, b.Token) })
	return shares
}

// use is how much of a lock that several can hold is taken.
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

// words is "5 of 8 permits taken by 3 holders, 3 free".
func (u use) words() string {
	switch {
	case u.kind == metadata.HoldsShared:
		return "read-write lock, " + count(u.holders, "reader")
	case u.limit == 0:
		return count(u.holders, "holder")
	}
	return fmt.Sprintf("semaphore, %d of %s taken by %s, %d free", u.permits, count(u.limit, "permit"),
		count(u.holders, "holder"), u.free(u.limit))
}

func (u use) free(limit int) int { return max(limit-u.permits, 0) }

// standing is the state of a wait, in the words of a refusal.
func (k *kindFlags) standing(w mutex.Waiting) *mutex.HeldError {
	held := &mutex.HeldError{Lock: w.Lock, Holder: w.Holder, Holders: w.Holders, At: w.At, Position: w.Position,
		Kind: k.kind()}
	if held.Kind == metadata.HoldsPermits {
		held.Limit = k.semaphore
		held.Weight = max(k.weight, 1)
		records := make([]*metadata.Record, len(w.Holders))
		for i := range w.Holders {
			records[i] = &w.Holders[i].Record
		}
		if u := useOf(records); len(records) == 0 || records[0].Name != w.Lock {
			held.Free = u.free(k.semaphore)
		}
	}
	return held
}

// waitsForItself reports whether the wait cannot end before the hold with this uuid does, under which this command
// runs.
func waitsForItself(held *mutex.HeldError, uuid string) bool {
	if uuid == "" {
		return false
	}
	if held.Holder.UUID == uuid && (held.Kind == "" || held.Holder.Name == held.Lock) {
		return true
	}
	for i := range held.Holders {
		mine := &held.Holders[i]
		if mine.UUID != uuid {
			continue
		}
		return held.Kind == metadata.HoldsExclusive || held.Kind == metadata.HoldsPermits &&
			held.Weight > held.Limit-mine.Permits()
	}
	return false
}
