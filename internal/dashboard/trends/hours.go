package trends

import "time"

// Hours is how many hours a heat map has.
const Hours = 24

// Hour is one hour of a heat map.
type Hour struct {
	From          time.Time
	Length        time.Duration // an hour, or how much of it has gone by
	Held, Waiting float64       // shares of the hour, from 0 to 1, at least: what is not known counts as nothing
}

// Hold is a time in which a lock was held. A hold that lasts has a zero End.
type Hold struct{ Begin, End time.Time }

// Day sums up for how much of each of the last hours a lock was held and waited for, oldest first. The last hour is the
// one that has begun, and counts as far as it has gone. Holds may overlap, as those of a semaphore do.
func Day(now time.Time, holds []Hold, points []Point) []Hour {
	last := now.UTC().Truncate(time.Hour)
	hours := make([]Hour, Hours)
	for i := range hours {
		from := last.Add(time.Duration(i-Hours+1) * time.Hour)
		to := from.Add(time.Hour)
		if now.Before(to) {
			to = now
		}
		hours[i] = Hour{From: from, Length: to.Sub(from)}
		if length := to.Sub(from); length > 0 {
			hours[i].Held = float64(covered(holds, from, to, now)) / float64(length)
		}
		for _, p := range points {
			if p.Known && !p.At.Before(from) && p.At.Before(to) {
				hours[i].Waiting += p.Waiting
			}
		}
		if begun := (to.Sub(from) + Slot - 1) / Slot; begun > 0 {
			hours[i].Waiting /= float64(begun)
		}
	}
	return hours
}

// covered is for how long at least one of the holds lasted between two moments.
func covered(holds []Hold, from, to, now time.Time) (sum time.Duration) {
	const parts = 240 // of a quarter of a minute: finer is not drawn
	step := to.Sub(from) / parts
	if step <= 0 {
		return 0
	}
	var held [parts]bool
	for _, h := range holds {
		end := h.End
		if end.IsZero() || end.After(now) {
			end = now
		}
		if h.Begin.IsZero() || !end.After(from) || !h.Begin.Before(to) {
			continue
		}
		first := max(0, int(h.Begin.Sub(from)/step))
		last := min(parts-1, int((end.Sub(from)-1)/step))
		for i := first; i <= last; i++ {
			held[i] = true
		}
	}
	for _, is := range held {
		if is {
			sum += step
		}
	}
	return sum
}
