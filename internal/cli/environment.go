package cli

import (
	"fmt"
	"os"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// The variables by which a command knows the lock that it runs under.
const (
	envName  = "MUTEX_NAME"
	envUUID  = "MUTEX_UUID"
	envToken = "MUTEX_TOKEN"

	envAskedBy     = "MUTEX_ASKED_BY" // of the command of --on-ask
	envAskedReason = "MUTEX_ASKED_REASON"
)

func lockEnvironment(lock *mutex.Lock) []string {
	return append(os.Environ(), envName+"="+lock.Name(), envUUID+"="+lock.UUID(),
		fmt.Sprintf("%s=%d", envToken, lock.Token()))
}
