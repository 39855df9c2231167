package protocol

import (
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Environment variables of a command that runs under holds.
const (
	EnvUUID  = "MUTEX_UUID"  // of the innermost hold
	EnvUnder = "MUTEX_UNDER" // of all holds, separated by blanks
)

const maxUnder = 16

// Under returns the uuids of the holds under which a process with this environment works, and of these holds, as a
// ticket has them.
func Under(getenv func(string) string, holds ...string) string {
	var under []string
	for _, uuid := range slices.Concat(strings.Fields(getenv(EnvUnder)), []string{getenv(EnvUUID)}, holds) {
		if len(under) < maxUnder && metadata.IsUUID(uuid) && !slices.Contains(under, uuid) {
			under = append(under, uuid)
		}
	}
	return strings.Join(under, " ")
}
