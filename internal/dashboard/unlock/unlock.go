package unlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Request is a force unlock that somebody asks for. Hold, Token and Revision say what the person saw: another hold is
// never removed, the same hold is even if its holder extended it meanwhile.
type Request struct {
	Name, Hold     string
	Token          int64 // create revision of the uuid key
	Revision       int64 // of the record
	Reason, Ticket string
}

// historyID is where the ending of the hold is recorded.
func (r Request) historyID() string {
	hold := metadata.Record{UUID: r.Hold, Token: r.Token}
	return hold.HistoryID()
}

// minReason is how long a reason has to be, in characters.
const minReason = 10

// FieldError says what is wrong with a field of the form, which is shown again.
type FieldError struct{ Field, Text string }

func (f *FieldError) Error() string { return f.Text }

// MayUnlock says whether the caller may force-unlock at all.
func (h *Handler) MayUnlock(c access.Caller) error {
	if h.site.Config.ForceUnlock == nil {
		return &site.Problem{Status: http.StatusForbidden, Code: "read_only", Title: "Read-only",
			Detail: "Force unlock is switched off on this dashboard. A person with write access to etcd can use " +
				"mutexctl force-unlock."}
	}
	return h.site.Admit(c, access.Unlock)
}

// notStale refuses what should not rest on an old snapshot.
func notStale(r *site.Request) error {
	switch r.Level() {
	case locks.Never:
		_, err := r.Loaded()
		return err
	case locks.Stale:
		return &site.Problem{Status: http.StatusPreconditionFailed, Code: "stale", Title: "Not while the data is stale",
			Detail: "etcd was last heard at " + phrase.TimeOfDay(r.Fresh.Heard) + " UTC" + r.Fresh.Why() +
				", so what you saw may not be so any more. Nothing was done."}
	}
	return nil
}

// check makes the texts of a request one line each and refuses what nobody could use later.
func (r *Request) check() error {
	r.Reason = strings.Join(strings.Fields(r.Reason), " ")
	r.Ticket = strings.Join(strings.Fields(r.Ticket), " ")
	for _, text := range []string{r.Reason, r.Ticket} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return &FieldError{"reason", "Reason and ticket must be plain text."}
		}
	}
	switch n := utf8.RuneCountInString(r.Reason); {
	case n < minReason || n > site.MaxReason:
		return &FieldError{"reason",
			fmt.Sprintf("The reason has %d characters; it needs %d to %d, for the history.", n, minReason,
				site.MaxReason)}
	case utf8.RuneCountInString(r.Ticket) > site.MaxTicket:
		return &FieldError{"ticket", fmt.Sprintf("The ticket may have %d characters.", site.MaxTicket)}
	}
	return nil
}

// admitUnlock makes the checks that do not depend on what is asked for, in this order: permission, rate, freshness.
func (h *Handler) admitUnlock(r *site.Request) error {
	if err := h.MayUnlock(r.Caller); err != nil {
		return err
	}
	if err := h.rate.try(r.Caller.Name, r.Now); err != nil {
		return err
	}
	return notStale(r)
}

// forceUnlock removes the hold that the person saw, in one transaction that also records it. Nothing is sent twice.
func (h *Handler) forceUnlock(r *site.Request, asked Request) (protocol.Action, error) {
	// Who closes the tab now wants an answer less, not another outcome.
	r = r.With(context.WithoutCancel(r.Context()))
	document, err := h.readNow(r.Context(), asked.Name)
	if err != nil {
		return protocol.Action{}, h.notDone(err)
	}
	action := newAction(r, asked, holderLine(r, &document.Record))
	if len(document.Fields) == 0 || document.UUID != asked.Hold || document.Token != asked.Token {
		return action, h.conflict(r, asked, document)
	}
	if err := h.site.AdmitFor(r.Caller, access.Unlock, document.Owner); err != nil {
		return action, err
	}
	record := document.Record
	why := action.Reason
	if action.Ticket != "" {
		why += " (" + action.Ticket + ")"
	}
	ending := metadata.NewEnding(&record, metadata.EndedForced, action.Actor, why, action.At.Time)
	nothing, err := h.rate.take(r.Now)
	if err != nil {
		return action, err
	}
	err = h.site.Config.ForceUnlock(r.Context(), metadata.Removal{Record: &record, Ending: ending}, action)
	if err != nil && !errors.Is(err, setup.ErrUnknown) {
		nothing()
	}
	switch {
	case err == nil:
	case errors.Is(err, metadata.ErrChanged), errors.Is(err, setup.ErrUnknown):
		if err := h.lookAgain(r, asked, &record, ending, err); err != nil {
			return action, err
		}
	default:
		return action, h.notDone(err)
	}
	h.site.History.Forget() // the person looks for it next
	h.tell(asked, record.Owner, action)
	return action, nil
}

// holderLine is the holder in one line.
func holderLine(at *site.Request, r *metadata.Record) string {
	line := text.Visible(text.Clip(cmp.Or(r.Owner, "somebody"), site.MaxWordShown))
	if r.Hostname != "" {
		line += " on " + text.Visible(site.HostPID(r.Hostname, r.PID))
	}
	if !r.LockedAt.IsZero() {
		line += " for " + text.Duration(at.Now.Sub(r.LockedAt))
	}
	if r.Purpose != "" {
		line += " (" + text.Visible(text.Clip(r.Purpose, site.MaxLineShown)) + ")"
	}
	return line
}

func newAction(r *site.Request, asked Request, holder string) protocol.Action {
	return protocol.Action{
		ID: uuid.NewString(), At: metadata.Time{Time: r.Now.UTC().Truncate(time.Millisecond)},
		Actor: r.Caller.Name, Source: string(r.Caller.Source), Client: r.Caller.Client, UserAgent: r.Caller.Agent,
		Action: "force-unlock", Lock: asked.Name, UUID: asked.Hold, Token: asked.Token, Revision: asked.Revision,
		Holder: holder, Reason: asked.Reason, Ticket: asked.Ticket, Result: "success",
	}
}
