//go:build race

package sweeper_test

import "time"

// long is enough time for a fault to show, as far as the race detector allows.
const long = 3 * time.Hour
