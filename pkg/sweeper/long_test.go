//go:build !race

package sweeper_test

import "time"

// long is a time in which something that is wrong would show.
const long = 10 * time.Hour
