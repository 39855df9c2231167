package etcdretry

import "github.com/clustermutex/unlocker/internal/locktxn"

// Outcome is what the error of a commit says about its transaction.
type Outcome int

// The outcomes.
const (
	Unknown   Outcome = iota // it may have been committed, or may be so later: only etcd can tell
	Refused                  // it was not committed and will not be, however often it is sent
	Postponed                // it was not committed, but may be when it is sent again
	Full                     // etcd is out of space: it takes no more writes, but may have taken this last one
)

// Judge reads the error of a commit. What is not certain to be a refusal is Unknown.
func Judge(err error) Outcome {
	switch {
	case locktxn.Postponed(err):
		return Postponed
	case locktxn.NoSpace(err):
		return Full
	case locktxn.Refused(err):
		return Refused
	}
	return Unknown
}
