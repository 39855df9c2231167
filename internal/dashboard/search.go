package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// The answers to searches that were stopped.
var (
	errTooSlow = &problem{Status: http.StatusServiceUnavailable, Code: "too_slow", Title: "The search took too long",
		Retry:  time.Second,
		Detail: "It was stopped after 2 s. Make the regular expression simpler, or search for a part of the name."}
	errLeft = &problem{Status: http.StatusServiceUnavailable, Code: "left", Title: "Stopped",
		Detail: "The reader left before the search was done."}
)

// stopped is why a search under this context was stopped; nil while it may go on.
func stopped(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTooSlow):
		return errTooSlow
	}
	return errLeft
}

// searching is the context of a search for this reader.
func searching(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, maxSearch, errTooSlow)
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
		return nil, fmt.Errorf("the regular expression is too costly: it takes %d steps for every character, at most %d are allowed", n, maxRegexpInstructions)
	}
	return regexp.Compile(pattern)
}
