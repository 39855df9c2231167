package main

import "time"

// limits are what an operator does not want to exceed.
type limits struct {
	use           float64
	store, memory int64
}

// outcome is what the fullest of some clusters has to carry.
type outcome struct {
	clusters    int
	locks       int     // of the fullest cluster, placed by a table
	hashed      float64 // locks of the fullest cluster if placed by a hash, in proportion to the mean
	perSecond   float64 // requests
	usual       answers
	back        time.Duration // how long after its return a cluster has caught up; 0: not within the time simulated
	connections int           // of clients
	store       int64         // bytes
	memory      int64         // bytes, of etcd
	unlocker    int64         // bytes
	start       time.Duration // of an unlocker
	over        []string      // the limits that are exceeded
}

// window is the time that is simulated. It has the first second of two minutes.
const window = 2*time.Minute + 30*time.Second

func (w *world) simulate(clusters int, c costs, l limits) outcome {
	segments, locks := w.fullest(w.byTable(clusters))
	_, hashed := w.fullest(w.byHash(clusters))
	rs := w.requests(locks, window)
	at := service{extend: c.extend, hold: c.hold, floor: c.floor}
	o := outcome{
		clusters: clusters, locks: locks, hashed: float64(hashed) * float64(clusters) / float64(w.locks),
		perSecond: float64(len(rs)) / window.Seconds(), usual: at.serve(rs, 0, window),
		connections: min(w.clients, sum(w.clientsOf, segments)),
		store:       int64(locks) * c.store, unlocker: int64(locks) * c.unlocker,
		start: time.Duration(float64(locks) / c.read * float64(time.Second)),
	}
	o.memory = int64(locks)*c.memory + int64(o.connections)*c.connection
	if drained := at.serve(rs, w.away, window).drained; drained > 0 {
		o.back = drained - w.away
	}
	o.over = l.exceeded(o)
	return o
}

// exceeded names the limits that an outcome exceeds.
func (l limits) exceeded(o outcome) (over []string) {
	if o.usual.use > l.use {
		over = append(over, "throughput")
	}
	if o.store > l.store {
		over = append(over, "store")
	}
	if o.memory > l.memory {
		over = append(over, "memory")
	}
	return over
}
