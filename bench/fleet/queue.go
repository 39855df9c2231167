package main

import (
	"slices"
	"time"
)

// service is how a cluster serves requests: one after the other, each for as long as a request takes when nothing else
// limits.
type service struct {
	extend, hold time.Duration
	floor        time.Duration // what an answer takes when nobody else is there
}

// of returns the time that a request takes of a cluster.
func (s service) of(r request) time.Duration {
	if r.isHold() {
		return s.hold
	}
	return s.extend
}

// answers are how a cluster served some requests.
type answers struct {
	use      float64       // the share of its time that it worked; above 1: that it would have had to
	p50, p99 time.Duration // from request to answer
	worst    time.Duration
	drained  time.Duration // when everything that waited was answered for the first time; 0: never
}

// serve lets a cluster that is there from a moment on answer the requests of a time.
func (s service) serve(rs []request, from, within time.Duration) answers {
	var a answers
	var work time.Duration
	free := from
	waits := make([]time.Duration, 0, len(rs))
	for _, r := range rs {
		if free <= r.at() && free > from && a.drained == 0 {
			a.drained = free
		}
		done := max(free, r.at()) + s.of(r)
		waits = append(waits, done-r.at()+s.floor)
		work += s.of(r)
		free = done
	}
	if a.drained == 0 && free <= within {
		a.drained = free
	}
	a.use = work.Seconds() / within.Seconds()
	if len(waits) == 0 {
		return a
	}
	slices.Sort(waits)
	a.p50 = waits[len(waits)/2]
	a.p99 = waits[len(waits)*99/100]
	a.worst = waits[len(waits)-1]
	return a
}
