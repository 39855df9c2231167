//go:build !linux

package robustness

import "github.com/clustermutex/unlocker/pkg/metadata"

// keptByCommand is a lock like others: no witness runs here.
const keptByCommand = "keeper/command"

type leftBehind struct {
	pid     int64
	process metadata.Process
	end     func()
}

func leaveBehind() leftBehind { return leftBehind{end: func() {}} }
