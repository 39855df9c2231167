// Unlocker watches the distributed locks of an etcd cluster, measures them for Prometheus, and removes those whose
// holders are gone.
package main

import (
	"context"
	"os"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() {
	format := flags.LogFormat("UNLOCKER", os.Args[1:])
	os.Exit(daemon.Main("unlocker", format, func(ctx context.Context) error {
		return flags.Execute(ctx, unlocker.Command(), os.Args[1:])
	}))
}
