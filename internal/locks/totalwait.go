package locks

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// byTotalWait returns those of the rows, which come by name, that are ordered by the time their waiters lose, in that
// order.
func byTotalWait(rows []*Row) (ordered []*Row) {
	for _, r := range rows {
		if r.Waiters > 0 && r.Class != ClassOnTime {
			ordered = append(ordered, r)
		}
	}
	return Sort(ordered, Order{By: MostUrgent})
}

// overtakesAt returns when the first of the rows moves ahead of the one before it although nothing happens: the more
// wait for it, the faster its lost time grows. Zero = never.
func overtakesAt(rows []*Row, at time.Time) (first time.Time) {
	for i := 1; i < len(rows); i++ {
		ahead, behind := rows[i-1], rows[i]
		faster := behind.Timed - ahead.Timed
		if ahead.Class == behind.Class && (ahead.Acknowledged == nil) == (behind.Acknowledged == nil) && faster > 0 {
			after := (ahead.TotalWait-behind.TotalWait)/time.Duration(faster) + 1
			first = protocol.Earlier(first, at.Add(after))
		}
	}
	return first
}

// orderOf is the fingerprint of the order of rows.
func orderOf(rows []*Row) (order uint64) {
	for _, r := range rows {
		order = Hash(order, xxhash.Sum64String(r.Name))
	}
	return order
}
