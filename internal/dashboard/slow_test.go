//go:build !race

package dashboard_test

// How much slower tests run than programs, and how many locks they can bear.
const (
	slower = 1
	most   = 100_000
)
