// Package stats holds the few statistics that the benchmarks print.
package stats

import (
	"math"
	"slices"
	"time"
)

// Median returns the middle of xs, or the mean of the two in the middle; NaN if xs is empty.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(xs))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Spread returns the smallest and the largest of xs; NaN if xs is empty.
func Spread(xs []float64) (least, most float64) {
	if len(xs) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(xs), slices.Max(xs)
}

// Ratios divides as by bs, pair by pair: both of a pair were measured in the same round, and slowed down alike. A pair
// with a missing value has no ratio.
func Ratios(as, bs []float64) []float64 {
	var ratios []float64
	for i := range min(len(as), len(bs)) {
		if r := as[i] / bs[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// Percentile returns the smallest of ds that p percent of them do not exceed; 0 if ds is empty. It sorts ds.
func Percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	rank := int(math.Ceil(p / 100 * float64(len(ds))))
	return ds[min(max(rank, 1), len(ds))-1]
}

// Jain returns Jain's fairness index: 1 if all got the same, 1/n if one of n got everything, NaN if none got anything.
func Jain(shares []int) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Growth returns the exponent e of cost ~ size^e between two sizes: 0 is constant, 1 linear, 2 quadratic.
func Growth(size, cost, largerSize, largerCost float64) float64 {
	return math.Log(largerCost/cost) / math.Log(largerSize/size)
}

// Milliseconds returns d in ms.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
