package actions

import (
	"context"
	"encoding/json"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// What an operator did can be posted to a webhook, such as a chat channel of the owner. This happens after the
// response, and nothing depends on it: history and audit record the action.
const (
	maxNotices    = 64 // that wait; a person does one at a time
	noticeTimeout = 5 * time.Second
	noticeTries   = 3
	noticeRest    = 2 * time.Second // before the second try, twice that before the third
)

type noticeJSON struct {
	Event   protocol.Verb `json:"event"` // the action, as the audit trail calls it
	ID      string        `json:"audit_id"`
	At      string        `json:"at"`
	Lock    string        `json:"name"`
	Owner   string        `json:"owner"`
	Holder  string        `json:"holder"` // in one line
	Hold    string        `json:"uuid"`
	Actor   string        `json:"actor"`
	Reason  string        `json:"reason"`
	Ticket  string        `json:"ticket,omitempty"`
	More    int64         `json:"seconds,omitempty"` // given by an extend, or for which an acknowledgement lasts
	URL     string        `json:"url,omitempty"`     // the page of the hold, where the external URL is known
	Cluster string        `json:"cluster,omitempty"` // of several
}

// tell queues the notice of what was done.
func (h *Handler) tell(asked Request, owner string, a protocol.Action) {
	if h.site.Config.Notify == nil {
		return
	}
	n := noticeJSON{Event: a.Action, ID: a.ID, At: phrase.ISO(a.At.Time), Lock: a.Lock, Owner: owner, Holder: a.Holder,
		Hold: a.UUID, Actor: a.Actor, Reason: a.Reason, Ticket: a.Ticket, More: a.Seconds,
		Cluster: h.site.URLs.Cluster}
	if h.site.URLs.Origin != "" {
		n.URL = h.site.URLs.Origin + h.site.URLs.Lock(asked.Name, asked.historyID())
	}
	body, err := json.Marshal(n)
	if err == nil {
		select {
		case h.notices <- body:
			return
		default:
		}
	}
	h.told.count("dropped")
	h.site.Config.Log.Error().Err(err).Str("audit_id", a.ID).
		Msg("a notice is not sent: too many wait")
}

// Run sends what is queued until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case body := <-h.notices:
			h.sendNotice(ctx, body)
		}
	}
}

func (h *Handler) sendNotice(ctx context.Context, body []byte) {
	var err error
	for try := range noticeTries {
		if try > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(try) * noticeRest):
			}
		}
		sending, cancel := context.WithTimeout(ctx, noticeTimeout)
		err = h.site.Config.Notify(sending, body)
		if cancel(); err == nil {
			h.told.count("success")
			h.site.Config.Log.Info().RawJSON("notice", body).Msg("a notice was sent")
			return
		}
	}
	h.told.count("error")
	h.site.Config.Log.Error().Err(err).RawJSON("notice", body).Int("tries",
		noticeTries).Msg("a notice could not be sent")
}
