// Unlocker watches the distributed locks of an etcd cluster, measures them for Prometheus, and removes those whose
// holders are gone.
package main

import (
	"os"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() { os.Exit(flags.Main(unlocker.Command())) }
