package mutexdash

import (
	"time"

	"github.com/spf13/cobra"
)

// Quick is Command, but asks etcd for a sign of life more often.
func Quick() *cobra.Command { return command(200 * time.Millisecond) }
