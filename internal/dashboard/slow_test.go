//go:build !race

package dashboard_test

// How much slower tests run than programs, and how many locks they can bear.
const (
	slower = 2 // two processors share the work
	most   = 100_000
)
