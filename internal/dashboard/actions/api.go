package actions

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/api"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// bodyJSON is the body of an action. What it says of the hold is what GET api/v1/lock showed.
type bodyJSON struct {
	Name       string `json:"name"`
	NameBase64 []byte `json:"name_base64"`
	UUID       string `json:"uuid"`
	Token      string `json:"token"`
	Revision   string `json:"revision"` // of the record, only recorded; or of the lock delay to end
	Reason     string `json:"reason"`
	Ticket     string `json:"ticket"`
	Seconds    int64  `json:"seconds"`  // how much time to give, or for how long to acknowledge
	Note       string `json:"note"`     // the reason of an acknowledgement
	Withdraw   bool   `json:"withdraw"` // the acknowledgement that is there
}

// maxSeconds is more than any operation takes, and less than a duration can be.
const maxSeconds = 1 << 30

type doneJSON struct {
	Result  string `json:"result"`
	AuditID string `json:"audit_id"`
}

// ServeAPI is the action for programs. The checks are those of the page, but for the typed name.
func (o *Operation) ServeAPI(r *app.Request) (app.Answer, error) {
	wanted, err := o.readBody(r)
	if err == nil {
		err = o.checkCaller(r)
	}
	action, err := o.carryOut(r, &wanted, err)
	var wrong *FieldError
	switch {
	case errors.As(err, &wrong):
		return app.Answer{}, &app.HTTPError{Status: http.StatusUnprocessableEntity, Code: "bad_" + wrong.code(),
			Title:  "Not done",
			Detail: wrong.Text}
	case err != nil:
		return app.Answer{}, err
	}
	done := o.done
	if wanted.Undo {
		done = o.undone
	}
	return api.Answer(r, doneJSON{done, action.ID})
}

// accepts reports whether the body has no members of other operations.
func (o *Operation) accepts(j bodyJSON) bool {
	return (j.Note == "" || o.ReasonField == "note") && (!j.Withdraw || o.Undo != "")
}

func (o *Operation) readBody(r *app.Request) (wanted Request, err error) {
	var j bodyJSON
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&j); err != nil || decoder.More() || !o.accepts(j) {
		return wanted, app.BadBody("The body must be one JSON object of texts: name or name_base64, uuid, token and " +
			"reason; it may have ticket and revision. To give more time, it needs seconds, a number. To acknowledge, " +
			"it needs seconds, too, and has note instead of reason; or withdraw, which is true. To end a lock delay, " +
			"revision is that of the delay.")
	}
	wanted = Request{Name: cmp.Or(string(j.NameBase64), j.Name), Hold: j.UUID, Reason: cmp.Or(j.Note, j.Reason),
		Ticket: j.Ticket, Undo: j.Withdraw}
	if o.CheckDuration != nil {
		wanted.Duration = (time.Duration(min(max(j.Seconds, -1), maxSeconds)) * time.Second).String()
	}
	var err1, err2 error
	if o.verb == protocol.VerbEndDelay { // of which nothing but the revision may be known
		j.Token = cmp.Or(j.Token, "0")
		if j.Revision == "" {
			return wanted, app.BadBody("The body must have the revision of the lock delay that was seen.")
		}
	}
	wanted.Token, err1 = strconv.ParseInt(j.Token, 10, 64)
	wanted.Revision, err2 = strconv.ParseInt(cmp.Or(j.Revision, "0"), 10, 64)
	if wanted.Name == "" || err1 != nil || err2 != nil {
		return wanted, app.BadBody("The body must name a lock, and the token of the hold that was seen.")
	}
	return wanted, nil
}
