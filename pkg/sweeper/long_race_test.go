//go:build race

package sweeper_test

import "time"

// long is a time in which something that is wrong would show, as far as the race detector allows.
const long = 3 * time.Hour
