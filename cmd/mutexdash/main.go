// Mutexdash shows the distributed locks of an etcd cluster: which are stuck, who holds them, what for, and what happens
// next.
package main

import (
	"context"
	"os"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() {
	format := flags.LogFormat("MUTEXDASH", os.Args[1:])
	os.Exit(daemon.Main("mutexdash", format, func(ctx context.Context) error {
		return flags.Execute(ctx, mutexdash.Command(), os.Args[1:])
	}))
}
