package main

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// load is what the clients want.
type load struct {
	locks    int // held at any time
	clients  int
	segments int
	hold     time.Duration // median
	extend   time.Duration
	aligned  float64
	away     time.Duration
	seed     uint64
}

func (l load) check() error {
	switch {
	case l.locks < 1 || l.clients < 1 || l.segments < 1:
		return errors.New("-locks, -clients and -segments: want at least 1 each")
	case l.hold <= 0 || l.extend <= 0:
		return errors.New("-hold and -extend: want more than 0")
	case l.aligned < 0 || l.aligned > 1:
		return errors.New("-aligned: want a share between 0 and 1")
	case l.away < 0:
		return errors.New("-away: want 0 or more")
	}
	return nil
}

// spread is the standard deviation of the logarithm of the time for which locks are held: a sixth are held for more
// than e times the median.
const spread = 1.0

// meanHold is the mean of the log-normal times for which locks are held.
func (l load) meanHold() time.Duration {
	return time.Duration(float64(l.hold) * math.Exp(spread*spread/2))
}

// world is the load, divided into first segments of names.
type world struct {
	load
	locksOf   []int // locks held by segment, descending
	clientsOf []int // clients at home in each segment
}

// flatness is the exponent of Zipf's law that the sizes of the segments follow.
const flatness = 0.6

func newWorld(l load) *world {
	weights := make([]float64, l.segments)
	sum := 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(i+1), -flatness)
		sum += weights[i]
	}
	w := &world{load: l, locksOf: make([]int, l.segments), clientsOf: make([]int, l.segments)}
	for i, weight := range weights {
		w.locksOf[i] = int(math.Round(float64(l.locks) * weight / sum))
		w.clientsOf[i] = max(1, int(math.Round(float64(l.clients)*weight/sum)))
	}
	return w
}

// byTable puts each segment on the cluster that has the fewest locks, the largest first, as an operator with a table
// can.
func (w *world) byTable(clusters int) [][]int {
	placed := make([][]int, clusters)
	held := make([]int, clusters)
	for segment, n := range w.locksOf {
		least := 0
		for c := range held {
			if held[c] < held[least] {
				least = c
			}
		}
		placed[least] = append(placed[least], segment)
		held[least] += n
	}
	return placed
}

// byHash puts each segment on a cluster by chance, as a hash of its name does.
func (w *world) byHash(clusters int) [][]int {
	random := rand.New(rand.NewPCG(w.seed, 2))
	placed := make([][]int, clusters)
	for segment := range w.locksOf {
		c := random.IntN(clusters)
		placed[c] = append(placed[c], segment)
	}
	return placed
}

// fullest returns the segments of the cluster with the most locks, and how many these are.
func (w *world) fullest(placed [][]int) (segments []int, locks int) {
	for _, s := range placed {
		if n := sum(w.locksOf, s); n >= locks {
			segments, locks = s, n
		}
	}
	return segments, locks
}

func sum(of, at []int) (total int) {
	for _, i := range at {
		total += of[i]
	}
	return total
}

// request is something that a client wants from a cluster: microseconds since the beginning, times two, plus one for
// the end of one hold and the beginning of another.
type request uint64

func newRequest(at time.Duration, isHold bool) request {
	r := request(at.Microseconds()) << 1
	if isHold {
		r |= 1
	}
	return r
}

func (r request) at() time.Duration { return time.Duration(r>>1) * time.Microsecond }
func (r request) isHold() bool      { return r&1 == 1 }

// requests returns what the holders of so many locks want within a time, in order. The first holds are met in
// their midst, and the longer one is, the more likely it is met: hence the bias.
func (w *world) requests(locks int, within time.Duration) []request {
	random := rand.New(rand.NewPCG(w.seed, 1))
	var rs []request
	for range locks {
		end := time.Duration(w.length(random, spread*spread) * random.Float64())
		extension := time.Duration(random.Int64N(int64(w.extend)))
		for min(end, extension) < within {
			if extension < end {
				rs = append(rs, newRequest(extension, false))
				extension += w.extend
				continue
			}
			rs = append(rs, newRequest(w.align(random, end), true))
			extension = end + w.extend
			end += time.Duration(w.length(random, 0))
		}
	}
	slices.Sort(rs)
	return rs
}

// length is for how long a lock is held, in nanoseconds; its logarithm is greater by bias.
func (w *world) length(random *rand.Rand, bias float64) float64 {
	return float64(w.hold) * math.Exp(bias+spread*random.NormFloat64())
}

// align moves some of the holds to the first second of the next minute, when jobs of cron begin.
func (w *world) align(random *rand.Rand, at time.Duration) time.Duration {
	if random.Float64() >= w.aligned {
		return at
	}
	return at.Truncate(time.Minute) + time.Minute + time.Duration(random.Int64N(int64(time.Second)))
}
