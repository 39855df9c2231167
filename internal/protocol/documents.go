package protocol

import (
	"encoding/json"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Action is the value of an audit key: what an operator did.
type Action struct {
	ID        string        `json:"id"`
	At        metadata.Time `json:"at"`
	Actor     string        `json:"actor"`
	Source    string        `json:"source"` // where the identity came from: cli, basic, mtls, header, program
	Client    string        `json:"client,omitempty"`
	UserAgent string        `json:"user_agent,omitempty"` // program of the person, as it calls itself
	Action    Verb          `json:"action"`
	Lock      string        `json:"lock"`
	UUID      string        `json:"uuid"`
	Token     int64         `json:"token"`
	Revision  int64         `json:"revision"` // the record's revision as the person saw it
	Holder    string        `json:"holder"`   // one line
	Reason    string        `json:"reason"`
	Ticket    string        `json:"ticket,omitempty"`
	Result    string        `json:"result"` // success, conflict, denied, error
	// Seconds is how much time an ActionExtend gave, or how long an ActionAcknowledge lasts.
	Seconds int64 `json:"seconds,omitempty"`
}

// wire is what is stored as one JSON object in one key.
type wire interface {
	metadata.Ticket | metadata.Ending | metadata.Presence | metadata.Statement | metadata.Request | metadata.Extension |
		metadata.Acknowledgement | metadata.Delay | Action | Task
}

// Marshal writes a document. Text that is not UTF-8 is written with replacement characters, so
// that a hostile record cannot keep its own ending from being recorded.
func Marshal[T wire](document T) string {
	b, err := json.Marshal(document)
	if err != nil {
		return "{}" // only for attributes that Decode never yields
	}
	return string(b)
}

// Unmarshal reads a document. A member that cannot be read is an error.
func Unmarshal[T wire](value []byte) (T, error) {
	var document T
	err := json.Unmarshal(value, &document)
	return document, err
}

// ReadStatement reads what a witness says of the hold with this uuid, which is the end of its key. It returns nil if
// that is too long, cannot be read, or names another hold.
func ReadStatement(uuid string, kv KV) *metadata.Statement {
	if len(kv.Value) > metadata.MaxStatementBytes {
		return nil
	}
	s, err := Unmarshal[metadata.Statement](kv.Value)
	if err != nil || s.UUID != uuid {
		return nil
	}
	s.Revision = kv.ModRevision
	return &s
}
