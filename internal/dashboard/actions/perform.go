package actions

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Authorize returns an error if the action is switched off, or the caller lacks the permission for all locks.
func (o *Operation) Authorize(c access.Caller) error {
	if !o.app.Config.IsEnabled(o.verb) {
		return &app.HTTPError{Status: http.StatusForbidden, Code: "read_only", Title: "Read-only",
			Detail: o.subject +
				" is switched off on this dashboard. Anyone with write access to etcd can use mutexctl " +
				o.mutexctl() + "."}
	}
	return o.app.Authorize(c, o.permission())
}

// notStale refuses what should not rest on an old snapshot.
func notStale(r *app.Request) error {
	switch r.Level() {
	case locks.Never:
		_, err := r.Loaded()
		return err
	case locks.Stale:
		return &app.HTTPError{Status: http.StatusPreconditionFailed, Code: "stale",
			Title: "Not while the data is stale",
			Detail: "etcd has not answered since " + app.TimeOfDay(r.Fresh.HeardAt) + " UTC" + r.Fresh.Why() +
				". What you saw may be out of date. Nothing was done."}
	}
	return nil
}

// checkCaller checks permission, rate and freshness, in this order.
func (o *Operation) checkCaller(r *app.Request) error {
	if err := o.Authorize(r.Caller); err != nil {
		return err
	}
	if err := o.rate.countTry(r.Caller.Name, r.Now); err != nil {
		return err
	}
	return notStale(r)
}

// check checks the request, as far as that does not depend on the lock.
func (o *Operation) check(wanted *Request) error {
	if wanted.Undo {
		wanted.Reason = ""
		wanted.Ticket = ""
		wanted.Duration = ""
		return nil
	}
	if err := wanted.check(o.ReasonField, o.MinReasonLength); err != nil || o.CheckDuration == nil {
		return err
	}
	return wanted.parseDuration(o.CheckDuration)
}

// carryOut checks the request and performs the action, unless there is an error already, and records it.
func (o *Operation) carryOut(r *app.Request, wanted *Request, err error) (protocol.Action, error) {
	if err == nil {
		err = o.check(wanted)
	}
	action := o.newAction(r, *wanted, "")
	if err == nil {
		action, err = o.perform(r, *wanted)
	}
	o.record(r, *wanted, action, err)
	return action, err
}

// performOnHold does to the hold that the person saw what is asked for, in one transaction that also records it.
// Nothing is sent twice.
func (o *Operation) performOnHold(r *app.Request, wanted Request) (protocol.Action, error) {
	// Closing the tab now gives up the answer; it must not change the outcome.
	r = r.With(context.WithoutCancel(r.Context()))
	full, err := o.readNow(r.Context(), wanted.Name)
	if err != nil {
		return protocol.Action{}, o.notDone(err)
	}
	record := &full.Record
	action := o.newAction(r, wanted, holderLine(r, record))
	if len(full.Fields) == 0 || full.UUID != wanted.Hold || full.Token != wanted.Token {
		return action, o.conflict(r, wanted, full)
	}
	if err := o.checkHold(r, &full, action, &wanted); err != nil {
		return action, err
	}
	return action, o.sendToHold(r, wanted, o.target(r, record), action)
}

// target returns the hold in r, with the lock delay that follows.
func (o *Operation) target(at *app.Request, r *metadata.Record) protocol.ActionTarget {
	standard := at.Snapshot().Combined.Policy.LockDelay
	return protocol.ActionTarget{Hold: r, LockDelayAfter: r.EffectiveLockDelay(standard)}
}

// sendToHold sends the action to etcd. If etcd did not do it, or its answer was lost, the lock is read again.
func (o *Operation) sendToHold(r *app.Request, wanted Request, on protocol.ActionTarget, action protocol.Action) error {
	out, err := o.send(r, wanted, on, action)
	if errors.Is(err, metadata.ErrChanged) || errors.Is(err, metadata.ErrOutcomeUnknown) {
		return o.checkOutcome(r, wanted, on.Hold, out.Ending, err)
	}
	return err
}

// send sends the action to etcd, within the rate of all. Its error is for the caller, but for [metadata.ErrChanged] and
// [metadata.ErrOutcomeUnknown].
func (o *Operation) send(r *app.Request, wanted Request, on protocol.ActionTarget, action protocol.Action) (
	protocol.Outcome, error) {
	giveBack := func() {}
	var err error
	if !wanted.counted {
		giveBack, err = o.rate.reserve(r.Now)
	}
	if err != nil {
		return protocol.Outcome{}, err
	}
	out, err := o.app.Config.Operator.Perform(r.Context(), o.verbOf(wanted), on, action)
	if err != nil && !errors.Is(err, metadata.ErrOutcomeUnknown) {
		giveBack()
	}
	o.app.History.Invalidate() // the person looks for it next
	var refused *protocol.RefusedError
	switch {
	case errors.As(err, &refused):
		return out, notPossible(refused.Reason)
	case err == nil, errors.Is(err, metadata.ErrChanged), errors.Is(err, metadata.ErrOutcomeUnknown):
		return out, err
	}
	return out, o.notDone(err)
}

// checkHold checks that the caller has the permission for this hold, that the action applies to it, and that no other
// operator was faster. The statements of witnesses are in the snapshot only.
func (o *Operation) checkHold(r *app.Request, d *metadata.FullRecord, action protocol.Action, wanted *Request) error {
	if err := o.app.AuthorizeFor(r.Caller, o.permission(), d.Owner); err != nil {
		return err
	}
	if row := r.Snapshot().Find(d.Name); row != nil {
		lockrecord.AttachStatements(&d.Record, row.Death, row.Suspicion)
	}
	if err := o.verbOf(*wanted).CheckHold(&d.Record, action); err != nil {
		return notPossible(err.Error())
	}
	return o.checkConflict(r.Caller.Name, d, wanted)
}

func notPossible(why string) error {
	return &app.HTTPError{Status: http.StatusConflict, Code: "not_possible", Title: "Not done",
		Detail: "Nothing was done: " + why + "."}
}

func holderLine(at *app.Request, r *metadata.Record) string {
	line := text.Visible(text.Clip(cmp.Or(r.Owner, "somebody"), app.MaxWordShown))
	if r.Hostname != "" {
		line += " on " + text.Visible(app.HostPID(r.Hostname, r.PID))
	}
	if !r.LockedAt.IsZero() {
		line += " for " + text.Duration(at.Now.Sub(r.LockedAt))
	}
	if r.Purpose != "" {
		line += " (" + text.Visible(text.Clip(r.Purpose, app.MaxLineShown)) + ")"
	}
	return line
}

func (o *Operation) newAction(r *app.Request, wanted Request, holder string) protocol.Action {
	return protocol.Action{
		ID: uuid.NewString(), At: metadata.Time{Time: r.Now.UTC().Truncate(time.Millisecond)},
		Actor: r.Caller.Name, Source: string(r.Caller.Source), Client: r.Caller.Client, UserAgent: r.Caller.Agent,
		Verb: o.verbOf(wanted), Lock: wanted.Name, UUID: wanted.Hold, Token: wanted.Token, Revision: wanted.Revision,
		Holder: holder, Reason: wanted.Reason, Ticket: wanted.Ticket, Result: "success",
		Seconds: wanted.seconds,
	}
}

func (h *Handler) readNow(ctx context.Context, name string) (metadata.FullRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdread.Timeout)
	defer cancel()
	full, _, err := h.app.Config.Store.ReadRecord(ctx, name)
	return full, err
}

func (h *Handler) notDone(err error) error {
	return &app.HTTPError{Status: http.StatusServiceUnavailable, Code: "etcd", Title: "Not done",
		Detail: "Nothing was done: " + strings.TrimSuffix(h.app.Config.Explain(err), ".") + ".",
		Retry:  5 * time.Second}
}

// checkOutcome reads the lock again after an unclear outcome; it returns nil if our removal turns out to have
// succeeded.
func (o *Operation) checkOutcome(r *app.Request, wanted Request, record *metadata.Record, ours metadata.Ending,
	cause error) error {
	full, err := o.readNow(r.Context(), wanted.Name)
	there := len(full.Fields) > 0 && full.UUID == wanted.Hold && full.Token == wanted.Token
	switch {
	case err != nil || there:
		return o.holdMayRemain(wanted, there, cause)
	case !errors.Is(cause, metadata.ErrOutcomeUnknown):
		return o.conflict(r, wanted, full)
	}
	ending := o.app.Ending(r.Context(), wanted.Name, record.HistoryID())
	switch {
	case ours.Cause == "" || ending == nil: // it may have been done before the hold ended
		p := o.unknown(wanted.Name, o.app.URLs.Lock(wanted.Name, wanted.Hold), cause)
		p.Detail += " "
		return o.tellEnd(r, p, wanted, full)
	case ending.Cause == ours.Cause && ending.By == ours.By &&
		ending.EndedAt.Equal(ours.EndedAt.Truncate(time.Millisecond)):
		return nil
	}
	return o.conflict(r, wanted, full)
}

// holdMayRemain returns the error for a hold that is still there, or could not be read again.
func (o *Operation) holdMayRemain(wanted Request, there bool, cause error) error {
	p := o.unknown(wanted.Name, o.app.URLs.Lock(wanted.Name, wanted.Hold), cause)
	switch {
	case errors.Is(cause, metadata.ErrChanged):
		p.Status = http.StatusConflict
		p.Code = "hold_changed"
		p.Title = "Not done"
		p.Detail = "Nothing was done: the hold that you saw has ended or changed. Look at the lock again."
		if there && o.moved != "" {
			p.Detail = "Nothing was done: " + o.moved + "."
		}
	case there:
		p.Detail += " The hold is still there, but the change may still arrive."
	}
	return p
}

func (o *Operation) unknown(lock, link string, cause error) *app.HTTPError {
	return &app.HTTPError{Status: http.StatusGatewayTimeout, Code: "outcome_unknown", Title: "Outcome unknown",
		Name: lock, Link: link,
		Detail: "etcd did not confirm the change (" + o.app.Config.Explain(cause) + "). Look at the lock before " +
			"you try again."}
}

// conflict returns the error for a hold that ended before anything was done.
func (h *Handler) conflict(r *app.Request, wanted Request, now metadata.FullRecord) error {
	return h.tellEnd(r, &app.HTTPError{Status: http.StatusConflict, Code: "hold_changed", Title: "Not done",
		Name: wanted.Name, Link: h.app.URLs.Lock(wanted.Name, ""), Detail: "Nothing was done. "}, wanted, now)
}

// tellEnd adds how the hold ended, and who holds the lock now.
func (h *Handler) tellEnd(r *app.Request, p *app.HTTPError, wanted Request, now metadata.FullRecord) error {
	p.Detail += "The hold that you saw has ended"
	if ending := h.app.Ending(r.Context(), wanted.Name, wanted.historyID()); ending != nil {
		p.Detail += ": " + locks.EndedWord(ending.Cause)
		if ending.By != "" {
			p.Detail += " by " + text.Visible(ending.By)
		}
		p.Detail += " " + text.Duration(r.Now.Sub(ending.EndedAt.Time)) + " ago"
	}
	switch {
	case len(now.Fields) == 0 && len(r.Snapshot().Shares(wanted.Name)) > 0:
		p.Detail += ". The lock is now shared: " + locks.SummarizeHolders(r.Snapshot().Shares(wanted.Name)).Describe() +
			"."
	case len(now.Fields) == 0:
		p.Detail += ". Nobody holds the lock now."
	case now.Token == 0:
		p.Detail += ". Nobody holds the lock now, but keys of its record remain."
	default:
		p.Detail += ". The lock is now held by " + holderLine(r, &now.Record) + "."
		row := h.app.Config.Snapshots.Reread(&now.Record, nil, nil, r.Now)
		p.Lock = h.api.Lock(row, r.Now)
	}
	return p
}

// record counts an attempt and logs it: the log is the audit trail of attempts that were refused.
func (o *Operation) record(r *app.Request, wanted Request, a protocol.Action, err error) {
	result := "success"
	var p *app.HTTPError
	var wrong *FieldError // without a field: others have been faster
	switch {
	case err == nil:
	case errors.As(err, &p) && (p.Code == "hold_changed" || p.Code == "delay_over"),
		errors.As(err, &wrong) && wrong.Field == "":
		result = "conflict"
	case errors.As(err, &p) && (p.Code == "outcome_unknown" || p.Code == "etcd"):
		result = "error"
	default:
		result = "denied"
	}
	o.results.count(result)
	c := r.Caller
	event := o.app.Config.Log.Info()
	if err != nil {
		event = o.app.Config.Log.Warn().Str("why", text.Clip(err.Error(), app.MaxLogText))
	}
	if result == "denied" { // without any effect, and without end for who wants that
		logged, leftOut := o.app.Refusals.ShouldLog(c.Name, r.Now)
		if !logged {
			return
		}
		event = app.WithLeftOut(event, leftOut)
	}
	if wanted.seconds > 0 {
		event = event.Int64("seconds", wanted.seconds)
	}
	event.Str("audit", string(o.verbOf(wanted))).Str("result", result).Str("audit_id", a.ID).
		Str("actor", c.Name).Str("groups", c.Groups).Str("source", string(c.Source)).
		Str("client", c.Client).Str("user_agent", c.Agent).
		Str("lock", text.Visible(text.Clip(wanted.Name, metadata.MaxNameBytes))).Str("uuid", app.LogText(wanted.Hold)).
		Int64("token", wanted.Token).Int64("revision", wanted.Revision).Str("holder", a.Holder).
		Str("reason", text.Visible(text.Clip(wanted.Reason, 4*app.MaxReason))).
		Str("ticket", text.Visible(text.Clip(wanted.Ticket, 4*app.MaxTicket))).Msg("operator's action")
}
