package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// SourceProgram is the source of an action whose actor a program named, through package inspect.
const SourceProgram = "program"

// Forced is the removal of the hold that an operator saw, with the ending that tells its holder who did it and why.
// delay is how long nobody is to follow; it is rounded up to whole seconds.
func Forced(r *metadata.Record, a Action, delay time.Duration) metadata.Removal {
	why := a.Reason
	if a.Ticket != "" {
		why += " (" + a.Ticket + ")"
	}
	return metadata.Removal{
		Record: r, Ending: metadata.NewEnding(r, metadata.EndedForced, a.Actor, why, a.At.Time),
		Delay: (delay + time.Second - 1).Truncate(time.Second),
	}
}

// CheckOperator returns what is wrong with the name of an operator, as a sentence, or nil. It is one line of text.
func CheckOperator(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("the name of an operator is needed: history and audit trail keep it")
	case !isLine(name):
		return fmt.Errorf("the name of the operator must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}
