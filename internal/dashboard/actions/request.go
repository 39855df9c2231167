package actions

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Request is a requested action. Hold, Token and Revision say what the caller saw: the action never affects
// another hold.
type Request struct {
	Name, Hold     string
	Token          int64 // create revision of the uuid key
	Revision       int64 // of the record
	Reason, Ticket string
	Duration       string // as it was typed
	OtherDuration  string // the chosen duration, if another one was typed
	seconds        int64  // of Duration, parsed
	Undo           bool   // take back the acknowledgement
	SeenMark       int64  // the revision of the acknowledgement that the form showed; 0: any
	SeenRevision   int64  // the revision of the record that the form showed; 0: no form
	counted        bool   // against the rate of all, with others in the same form
}

// historyID returns the id under which the ending of the hold is recorded.
func (r Request) historyID() string {
	hold := metadata.Record{UUID: r.Hold, Token: r.Token}
	return hold.HistoryID()
}

// FieldError says what is wrong with a field of the form, which is shown again. Without a field, it says what others
// have done since the form was shown: the operator decides again.
type FieldError struct{ Field, Text string }

func (f *FieldError) Error() string { return f.Text }

func (f *FieldError) code() string {
	if f.Field == "more" {
		return "seconds"
	}
	return "reason"
}

// check makes the texts of a request one line each and refuses those that would be of no use later.
func (r *Request) check(what string, minReason int) error {
	r.Reason = oneLine(r.Reason)
	r.Ticket = oneLine(r.Ticket)
	switch n := utf8.RuneCountInString(r.Reason); {
	case !isPlainText(r.Reason):
		return &FieldError{"reason", "The " + what + " must be plain text."}
	case !isPlainText(r.Ticket):
		return &FieldError{"ticket", "The ticket must be plain text."}
	case n > app.MaxReason:
		return &FieldError{"reason", fmt.Sprintf("The %s has %d characters; it may have %d.", what, n, app.MaxReason)}
	case n < minReason:
		return &FieldError{"reason", fmt.Sprintf("The %s has %s; it needs %d to %d, for the history.", what,
			app.Plural(n, "character", "characters"), minReason, app.MaxReason)}
	case utf8.RuneCountInString(r.Ticket) > app.MaxTicket:
		return &FieldError{"ticket", fmt.Sprintf("The ticket may have %d characters.", app.MaxTicket)}
	}
	return nil
}

func (r *Request) parseDuration(check func(time.Duration) error) error {
	if r.OtherDuration != "" {
		return &FieldError{"more", "Which time do you mean? You chose " + r.OtherDuration + " and typed " +
			text.Visible(text.Clip(r.Duration, 20)) + ". Choose what you typed, or delete it."}
	}
	d, err := locks.ParseDuration(text.Clip(strings.Join(strings.Fields(r.Duration), ""), 20))
	if err == nil && d%time.Second != 0 {
		err = errors.New("it must be in whole seconds")
	}
	if err != nil {
		return &FieldError{"more", "How much time is that? Write it like 45m, 1h30m or 2d."}
	}
	if err := check(d); err != nil {
		return &FieldError{"more", "That time is not possible: " + err.Error() + "."}
	}
	r.seconds = int64(d / time.Second)
	return nil
}

// oneLine returns the text of a box of several lines in one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func isPlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
