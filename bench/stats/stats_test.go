package stats_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/bench/stats"
)

func TestMedianIsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 100}, 3.5},
	} {
		given := slices.Clone(c.of)
		if got := stats.Median(given); got != c.want || !slices.Equal(given, c.of) {
			t.Errorf("median of %v = %v, want %v; now it is %v", c.of, got, c.want, given)
		}
	}
	if got := stats.Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestPercentileIsANearestRank(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i))
	}
	for p, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		if got := stats.Percentile(slices.Clone(ds), p); got != want {
			t.Errorf("percentile %v = %d, want %d", p, got, want)
		}
	}
	if got := stats.Percentile([]time.Duration{7}, 99); got != 7 {
		t.Errorf("percentile of one = %d, want 7", got)
	}
}

func TestJainIsOneForEqualSharesAndAnNthForOneWinner(t *testing.T) {
	for _, c := range []struct {
		of   []int
		want float64
	}{
		{[]int{5, 5, 5, 5}, 1},
		{[]int{8, 0, 0, 0}, 0.25},
		{[]int{3, 1}, 0.8},
	} {
		if got := stats.Jain(c.of); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Jain of %v = %v, want %v", c.of, got, c.want)
		}
	}
	if got := stats.Jain([]int{0, 0}); !math.IsNaN(got) {
		t.Errorf("Jain of nothing = %v, want NaN", got)
	}
}
