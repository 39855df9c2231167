package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrRefused matches the error of every write that a fence kept out.
	ErrRefused = errors.New("refused by the fence")

	// ErrNoToken means that a request or a context carries no token.
	ErrNoToken = errors.New("no fencing token")

	// ErrBadToken means that a request carries something other than one token.
	ErrBadToken = errors.New("not a fencing token")

	// ErrFull means that a [Memory] would have to forget a resource to take another.
	ErrFull = errors.New("too many fenced resources")
)

// StaleError means that a greater token came before: another got the lock since. It is an [ErrRefused].
type StaleError struct {
	Resource string
	Token    int64 // of the write
	Newest   int64 // the greatest that was seen
}

// Error names both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("token %d for %q is stale, %d came before", e.Token, e.Resource, e.Newest)
}

// Is makes every StaleError an ErrRefused.
func (e *StaleError) Is(target error) bool { return target == ErrRefused }
