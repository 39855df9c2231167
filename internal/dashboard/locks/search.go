package locks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Limits of what a search may cost. An instruction of a regular expression takes about 5 ns for each byte of a name.
const (
	maxRegexpBytes        = 128
	maxRegexpInstructions = 300 // a UUID digit by digit takes 38
	// of a name, which can be longer where somebody wrote the key by hand
	maxRegexpName    = 4 * metadata.MaxNameBytes
	maxSearch        = 2 * time.Second
	maxCostly        = 2 // searches with regular expressions at once; each takes all processors
	rowsBetweenLooks = 256
)

// Why a search was stopped.
var (
	ErrTooSlow = fmt.Errorf("the search took longer than %v", maxSearch)
	ErrLeft    = errors.New("the reader left before the search was done")
)

// Stopped is why a search under this context was stopped; nil while it may go on.
func Stopped(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrTooSlow):
		return ErrTooSlow
	}
	return ErrLeft
}

// WithLimit is the context of a search for this reader.
func WithLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, maxSearch, ErrTooSlow)
}

// compileRegexp reads a regular expression and refuses one that would take long for every name.
func compileRegexp(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxRegexpBytes {
		return nil, fmt.Errorf("a regular expression may have %d bytes", maxRegexpBytes)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if n := len(program.Inst); n > maxRegexpInstructions {
		return nil, fmt.Errorf("the regular expression is too costly: it takes %d steps for every character, at most "+
			"%d are allowed", n, maxRegexpInstructions)
	}
	return regexp.Compile(pattern)
}
