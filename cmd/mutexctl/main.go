// Mutexctl takes, shows and ends distributed locks from the command line.
package main

import (
	"context"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/daemon"
)

func main() {
	os.Exit(cli.Main(context.Background(), cli.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now,
		Log: func(level, format string) zerolog.Logger {
			return daemon.Logger(daemon.LogSettings{Level: level, Format: format}, os.Stderr)
		},
	}))
}
