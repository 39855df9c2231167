package lockview

import (
	"time"
)

// maxSilence is how long the snapshot counts as current without a sign of life from etcd.
const maxSilence = 10 * time.Second

// state is what Freshness is made of.
type state struct {
	synced            bool
	revision, highest int64
	heard, since      time.Time
	cause             string
}
