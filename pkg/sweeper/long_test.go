//go:build !race

package sweeper_test

import "time"

// long is enough time for a fault to show.
const long = 10 * time.Hour
