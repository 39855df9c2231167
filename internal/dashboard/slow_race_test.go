//go:build race

package dashboard_test

// How much slower tests run than programs while the race detector watches, and how many locks they can bear then.
const (
	slower = 15
	most   = 10_000
)
