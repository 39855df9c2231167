package route

import (
	"errors"
	"fmt"

	"github.com/clustermutex/unlocker/internal/text"
)

var (
	// ErrNoRoute matches every [*NoRouteError].
	ErrNoRoute = errors.New("no route")

	// ErrClosed means that the client was closed while a call waited for a newer table.
	ErrClosed = errors.New("the client of routes is closed")
)

// NoRouteError means that the table has no route for the segment of a lock, and no default.
type NoRouteError struct{ Lock, Segment string }

// Error names the segment.
func (e *NoRouteError) Error() string {
	return fmt.Sprintf("lock %q: the table has no route for the segment %q and no default", e.Lock, e.Segment)
}

// Is makes every NoRouteError an [ErrNoRoute].
func (e *NoRouteError) Is(target error) bool { return target == ErrNoRoute }

// MovedError means that a lock has moved, and that the table of this process is older than the move.
type MovedError struct {
	Lock    string
	Cluster string // where it is now, by the claim of the move; text from outside
	Move    int
	Err     error // why the caller stopped waiting for a newer table; nil from calls that do not wait
}

// Error says where the lock is.
func (e *MovedError) Error() string {
	line := fmt.Sprintf("lock %q has moved to cluster %q with move %d, and the table here is older", e.Lock,
		text.Visible(e.Cluster), e.Move)
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	return line
}

// Unwrap returns why the caller stopped waiting.
func (e *MovedError) Unwrap() error { return e.Err }

// TokenError means that a lock was not taken in its new cluster, because its fencing token would be smaller than those
// of holders in the old one.
type TokenError struct {
	Lock          string
	Cluster, From string
	Revision      int64 // of Cluster
	Token         int64 // of the move's claim in From
}

// Error says by how much the new cluster is behind.
func (e *TokenError) Error() string {
	return fmt.Sprintf("lock %q: fencing tokens would fall: cluster %q is at revision %d, the lock was held in %q "+
		"until %d", e.Lock, e.Cluster, e.Revision, e.From, e.Token)
}
