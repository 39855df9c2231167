package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrRefused is what errors.Is finds in the error of a write that a fence kept out.
	ErrRefused = errors.New("refused by the fence")

	// ErrNoToken says that a request or a context carries no token.
	ErrNoToken = errors.New("no fencing token")

	// ErrBadToken says that a request carries something else than one token.
	ErrBadToken = errors.New("not a fencing token")

	// ErrFull says that a [Memory] would have to forget a resource to take another.
	ErrFull = errors.New("too many fenced resources")
)

// StaleError says that a greater token came before: the lock has been somebody else's since. It is an [ErrRefused].
type StaleError struct {
	Resource string
	Token    int64 // what was sent
	Newest   int64 // the greatest that was seen
}

// Error tells both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("token %d for %q is stale, %d came before", e.Token, e.Resource, e.Newest)
}

// Is makes every StaleError an ErrRefused.
func (e *StaleError) Is(target error) bool { return target == ErrRefused }
