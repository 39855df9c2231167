// Package clients holds the sources of the clients in other languages, for the demo of mutexdev. Their packages are
// built from the same files.
package clients

import "embed"

// Sources are the files of the clients, by their path below this directory.
//
//go:embed python/src/clustermutex/*.py ruby/lib/*.rb ruby/lib/clustermutex/*.rb typescript/src/*.ts
var Sources embed.FS
