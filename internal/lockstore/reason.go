package lockstore

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

// Why a watch ended, in one word. The words are values of a metric's label.
const (
	ReasonCompacted  = "compacted"  // etcd compacted revisions that the watch still needed
	ReasonNoLeader   = "no_leader"  // the member lost contact with the majority
	ReasonToken      = "token"      // the login expired; the next request logs in again
	ReasonPermission = "permission" // permission to read the prefix was revoked
	ReasonConnection = "connection"
	ReasonSilent     = "silent"    // connected, but nothing arrives
	ReasonSlow       = "slow"      // this process cannot keep up
	ReasonBehind     = "behind"    // so far behind after an interruption that listing again is cheaper
	ReasonWentBack   = "went_back" // etcd was restored from an older state
	ReasonOther      = "other"
)

var errClosed = errors.New("the watch was closed")

// WatchError is why a watch ended.
type WatchError struct {
	reason string
	err    error
}

// Reason returns the cause in one word.
func (e *WatchError) Reason() string { return e.reason }

// Error returns the cause as a sentence.
func (e *WatchError) Error() string { return fmt.Sprintf("the watch ended: %v", e.err) }

// Unwrap returns the underlying error.
func (e *WatchError) Unwrap() error { return e.err }

func ended(reason string, err error) *WatchError { return &WatchError{reason: reason, err: err} }

func wentBack(from, to int64) *WatchError {
	return ended(ReasonWentBack,
		fmt.Errorf("etcd went back from revision %d to %d: it was restored from an older state", from, to))
}

// reasonOf classifies an error of a watch. Some are etcd errors that lost their type on the way, and are found by text.
func reasonOf(err error) string {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{rpctypes.ErrCompacted, ReasonCompacted}, {rpctypes.ErrNoLeader, ReasonNoLeader},
		{rpctypes.ErrFutureRev, ReasonWentBack},
		{rpctypes.ErrPermissionDenied, ReasonPermission}, {rpctypes.ErrInvalidAuthToken, ReasonToken},
		{rpctypes.ErrAuthOldRevision, ReasonToken},
	} {
		if errors.Is(err, known.err) || strings.Contains(err.Error(), known.err.Error()) {
			return known.reason
		}
	}
	switch locktxn.Code(err) {
	case codes.PermissionDenied:
		return ReasonPermission
	case codes.Unauthenticated:
		return ReasonToken
	case codes.Unavailable:
		return ReasonConnection
	}
	return ReasonOther
}
