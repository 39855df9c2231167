// Mutexdash shows the distributed locks of an etcd cluster: which are stuck, who holds them, what for, and what happens
// next.
package main

import (
	"os"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() { os.Exit(flags.Main(mutexdash.Command())) }
