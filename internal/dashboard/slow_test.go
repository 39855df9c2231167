//go:build !race

package dashboard_test

// How much slower tests run than programs, and how many locks they can bear.
const (
	slower = 2 // packages are tested side by side
	most   = 100_000
)
