package actions

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// readNow reads the lock from etcd.
func (h *Handler) readNow(ctx context.Context, name string) (metadata.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdread.Timeout)
	defer cancel()
	document, _, err := h.site.Config.Store.Get(ctx, name)
	return document, err
}

func (h *Handler) notDone(err error) error {
	return &site.Problem{Status: http.StatusServiceUnavailable, Code: "etcd", Title: "Not done",
		Detail: "Nothing was done: " + strings.TrimSuffix(h.site.Config.Explain(err), ".") + ".",
		Retry:  5 * time.Second}
}

// lookAgain tells what became of the hold. It is nil when our removal turns out to have been done.
func (o *Operation) lookAgain(r *site.Request, asked Request, record *metadata.Record, ours metadata.Ending,
	cause error) error {
	document, err := o.readNow(r.Context(), asked.Name)
	there := len(document.Fields) > 0 && document.UUID == asked.Hold && document.Token == asked.Token
	switch {
	case there && o.moved != "" && errors.Is(cause, metadata.ErrChanged):
		return &site.Problem{Status: http.StatusConflict, Code: "hold_changed", Title: "Not done", Name: asked.Name,
			Link:   o.site.URLs.Lock(asked.Name, asked.Hold),
			Detail: "Nothing was done: " + o.moved + "."}
	case err != nil || there:
		unknown := &site.Problem{Status: http.StatusGatewayTimeout, Code: "outcome_unknown", Title: "Outcome unknown",
			Link:   o.site.URLs.Lock(asked.Name, asked.Hold),
			Detail: "etcd did not say whether it was done (" + o.site.Config.Explain(cause) + "). "}
		if unknown.Detail += "Look at the lock before you try again."; there {
			unknown.Detail += " The hold is still there, but the request may still be on its way."
		}
		return unknown
	case errors.Is(cause, protocol.ErrUnknown) && ours.Ended != "":
		ending := o.site.Ending(r.Context(), asked.Name, record.HistoryID())
		if ending != nil && ending.Ended == ours.Ended && ending.By == ours.By &&
			ending.EndedAt.Equal(ours.EndedAt.Truncate(time.Millisecond)) {
			return nil
		}
	}
	return o.conflict(r, asked, document)
}

// conflict says who holds the lock now, or how the hold ended.
func (h *Handler) conflict(r *site.Request, asked Request, now metadata.Document) error {
	p := &site.Problem{Status: http.StatusConflict, Code: "hold_changed", Title: "Not done", Name: asked.Name,
		Link:   h.site.URLs.Lock(asked.Name, ""),
		Detail: "Nothing was done. The hold that you saw is over"}
	if ending := h.site.Ending(r.Context(), asked.Name, asked.historyID()); ending != nil {
		p.Detail += ": " + locks.EndedWord(ending.Ended)
		if ending.By != "" {
			p.Detail += " by " + text.Visible(ending.By)
		}
		p.Detail += " " + text.Duration(r.Now.Sub(ending.EndedAt.Time)) + " ago"
	}
	switch {
	case len(now.Fields) == 0 && len(r.Snapshot().Shares(asked.Name)) > 0:
		p.Detail += ". The lock is now shared: " + locks.UseOf(r.Snapshot().Shares(asked.Name)).Words() + "."
	case len(now.Fields) == 0:
		p.Detail += ". Nobody holds the lock now."
	case now.Token == 0:
		p.Detail += ". Nobody holds the lock now, but keys of it are there."
	default:
		p.Detail += ". The lock is now held by " + holderLine(r, &now.Record) + "."
		row := h.site.RowNow(r, &now.Record, nil, nil)
		p.Lock = h.api.Lock(row, r.Now)
	}
	return p
}

// isOvertaken reports whether others have been faster.
func isOvertaken(err error) bool {
	var wrong *FieldError
	return errors.As(err, &wrong) && wrong.Field == ""
}

// record counts a try and writes it to the log, which is the audit trail of what was not done.
func (o *Operation) record(r *site.Request, asked Request, a protocol.Action, err error) {
	result := "success"
	var p *site.Problem
	switch {
	case err == nil:
	case errors.As(err, &p) && (p.Code == "hold_changed" || p.Code == "delay_over"), isOvertaken(err):
		result = "conflict"
	case errors.As(err, &p) && (p.Code == "outcome_unknown" || p.Code == "etcd"):
		result = "error"
	default:
		result = "denied"
	}
	o.results.count(result)
	c := r.Caller
	event := o.site.Config.Log.Info()
	if err != nil {
		event = o.site.Config.Log.Warn().Str("why", text.Clip(err.Error(), site.MaxLogged))
	}
	if result == "denied" { // without any effect, and without end for who wants that
		logged, leftOut := o.site.Refusals.Take(c.Name, r.Now)
		if !logged {
			return
		}
		event = site.LeftOutOf(event, leftOut)
	}
	if asked.seconds > 0 {
		event = event.Int64("seconds", asked.seconds)
	}
	event.Str("audit", string(o.verbOf(asked))).Str("result", result).Str("audit_id", a.ID).
		Str("actor", c.Name).Str("source", string(c.Source)).Str("client", c.Client).Str("user_agent", c.Agent).
		Str("lock", text.Visible(text.Clip(asked.Name, metadata.MaxNameBytes))).Str("uuid", site.Logged(asked.Hold)).
		Int64("token", asked.Token).Int64("revision", asked.Revision).Str("holder", a.Holder).
		Str("reason", text.Visible(text.Clip(asked.Reason, 4*site.MaxReason))).
		Str("ticket", text.Visible(text.Clip(asked.Ticket, 4*site.MaxTicket))).Msg("operator's action")
}
