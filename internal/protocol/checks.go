package protocol

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxMoreTime is the most time that an operator can give a holder at once.
const maxMoreTime = 7 * 24 * time.Hour

// NewDeadlines returns the new deadlines of a hold that is given more time: each is d after now or, if that is later, d
// after the old one; the alert is not after the auto-unlock. They are rounded up to whole seconds.
func NewDeadlines(r *metadata.Record, d time.Duration, now time.Time) (alertAt, autoUnlockAt time.Time) {
	autoUnlockAt = Later(r.AutoUnlockAt, now).Add(d)
	alertAt = Later(r.AlertAt, now).Add(d)
	if alertAt.After(autoUnlockAt) {
		alertAt = autoUnlockAt
	}
	return roundUpToSecond(alertAt), roundUpToSecond(autoUnlockAt)
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// SortableTime returns a time as a number that sorts; an unknown time comes last.
func SortableTime(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixNano()
}

// Earlier returns the earlier of two times, where zero means none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func roundUpToSecond(t time.Time) time.Time {
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}

// checkMoreTime returns an error, a sentence, if a hold cannot be given more time. now is the operator's clock.
func checkMoreTime(r *metadata.Record, d time.Duration, now time.Time) error {
	if err := checkMoreTimeDuration(d); err != nil {
		return err
	}
	if err := checkIdentified(r); err != nil {
		return err
	}
	switch {
	case r.AlertAt.IsZero() || r.AutoUnlockAt.IsZero():
		return errors.New("the record has a deadline that is missing or cannot be read, so it cannot be moved")
	case r.ProvenDead():
		return errors.New("the holder has ended, so more time cannot help it")
	}
	_, until := NewDeadlines(r, d, now)
	if read, err := metadata.ParseTime(metadata.FormatTime(until)); err != nil || !read.Equal(until) {
		return errors.New("the new deadline is later than a record can say")
	}
	return nil
}

// checkMoreTimeDuration returns an error, a sentence, if d cannot be given.
func checkMoreTimeDuration(d time.Duration) error {
	switch {
	case d < time.Second:
		return errors.New("the time to give must be at least a second")
	case d > maxMoreTime:
		return errors.New("at most 7 days can be given at once")
	}
	return nil
}

// checkAsk returns an error, a sentence, if the holder of a record cannot be asked to finish.
func checkAsk(r *metadata.Record) error {
	if err := checkIdentified(r); err != nil || !r.ProvenDead() {
		return err
	}
	return errors.New("its holder is dead: nobody would see the request")
}

// checkIdentified returns an error, a sentence, if nothing can be written for the hold in r.
func checkIdentified(r *metadata.Record) error {
	switch {
	case r.Misplaced:
		return errors.New("the record is at keys that belong to no lock, so no holder watches it")
	case r.UUID == "" || r.Token == 0:
		return errors.New("the record has no uuid that can be read, so nobody can tell whose hold it is")
	}
	return nil
}

// The limits of an acknowledgement's duration: long enough to investigate, and not so long that it is forgotten.
const (
	minAcknowledgement = time.Minute
	maxAcknowledgement = 24 * time.Hour
)

// checkAcknowledgementDuration returns an error, a sentence, if an acknowledgement cannot last d.
func checkAcknowledgementDuration(d time.Duration) error {
	switch {
	case d < minAcknowledgement:
		return errors.New("an acknowledgement lasts at least a minute")
	case d > maxAcknowledgement:
		return errors.New("an acknowledgement lasts at most 24 hours")
	}
	return nil
}

// checkWithdraw returns an error, a sentence, if an acknowledgement cannot be withdrawn. One that is over can be, as
// long as its key exists.
func checkWithdraw(r *metadata.Record) error {
	if err := checkIdentified(r); err != nil || r.Acknowledgement != nil {
		return err
	}
	return errors.New("nobody has acknowledged it")
}

// CheckNote returns an error, a sentence, unless the note of an acknowledgement is empty or one line of text.
func CheckNote(note string) error {
	if !isLine(note) {
		return fmt.Errorf("the note must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}

// isLine reports whether an operator's text is at most one line, and not too long.
func isLine(s string) bool {
	return len(s) <= metadata.MaxTextBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// CheckReason returns an error, a sentence, unless an operator's reason is one line of text.
func CheckReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return errors.New("a reason is needed: it is recorded")
	case reason == text.Placeholder:
		return errors.New(text.Placeholder + " is a placeholder: write why")
	case !isLine(reason):
		return fmt.Errorf("the reason must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}

// CheckOperator returns an error, a sentence, unless the name of an operator is one line of text.
func CheckOperator(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("the name of an operator is needed: history and audit trail keep it")
	case !isLine(name):
		return fmt.Errorf("the name of the operator must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}
