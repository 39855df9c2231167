package protocol

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Action is the value of an audit key: what an operator did.
type Action struct {
	ID        string        `json:"id"`
	At        metadata.Time `json:"at"`
	Actor     string        `json:"actor"`
	Source    string        `json:"source"` // where the identity came from: cli, basic, mtls, header, program
	Client    string        `json:"client,omitempty"`
	UserAgent string        `json:"user_agent,omitempty"` // the person's program, as it identifies itself
	Action    Verb          `json:"action"`
	Lock      string        `json:"lock"`
	UUID      string        `json:"uuid"`
	Token     int64         `json:"token"`
	Revision  int64         `json:"revision"` // the record's revision that the person saw
	Holder    string        `json:"holder"`   // one line
	Reason    string        `json:"reason"`
	Ticket    string        `json:"ticket,omitempty"`
	Result    string        `json:"result"` // success, conflict, denied, error
	// Seconds is how much time an ActionExtend gave, or how long an ActionAcknowledge lasts.
	Seconds int64 `json:"seconds,omitempty"`
}

// wire is a document that is stored as one JSON object in one key.
type wire interface {
	metadata.Ticket | metadata.Ending | metadata.Presence | metadata.Statement | metadata.Request | metadata.Extension |
		metadata.Acknowledgement | metadata.Delay | Action | Task
}

// Marshal writes a document. Text that is not UTF-8 is written with replacement characters, so that a hostile record
// cannot prevent the recording of its own ending.
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

// ReadStatement reads a witness's statement about the hold with this uuid, which is the end of its key. It returns nil
// if the statement is too long, cannot be read, or names another hold.
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

// Gatherer assembles locks from keys in key order, one lock after another, so that only one lock with its backtrace is
// in memory at a time.
type Gatherer struct {
	// Each is called for every lock, with the arguments of [metadata.Decode].
	Each func(lock string, fields []metadata.Field, foreign []string)

	lock    string
	fields  []metadata.Field
	foreign []string
}

// Take takes the next key. Keys outside the range of any record are left out.
func (g *Gatherer) Take(key Key, kv KV) {
	if key.Lock == "" || key.Kind != KindField && key.Kind != KindForeign {
		return
	}
	if key.Lock != g.lock {
		g.Flush()
		g.lock = key.Lock
	}
	if key.Kind == KindForeign {
		g.foreign = append(g.foreign, kv.Key)
		return
	}
	g.fields = append(g.fields, kv.Field(key))
}

// Flush ends the current lock: call it after the last key. Foreign keys alone are not a lock.
func (g *Gatherer) Flush() {
	fields, foreign := g.fields, g.foreign
	g.fields = nil
	g.foreign = nil
	if len(fields) > 0 {
		g.Each(g.lock, fields, foreign)
	}
}

// Misplaced parses a key that looks like a field of a lock's record, but in a segment that [EncodeName] never writes:
// its client believes that it holds a lock. place is the key without the field and its "/", such as "/mutexes/100%".
func (l Layout) Misplaced(key string) (place, field string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return "", "", false
	}
	segment, field, ok := strings.Cut(rest, "/")
	if !ok || !metadata.IsFieldName(field) || strings.HasPrefix(segment, ".") {
		return "", "", false
	}
	if _, err := DecodeName(segment); err == nil {
		return "", "", false
	}
	return key[:len(key)-len(field)-1], field, true
}

// Misplace marks a record that was read at such a place. Its name is the place.
func (l Layout) Misplace(r *metadata.Record) {
	r.Misplaced = true
	segment := strings.TrimPrefix(r.Name, l.prefix)
	r.Problems = append([]metadata.Problem{{Field: "name", Reason: metadata.ReasonBadName,
		Text: fmt.Sprintf("%q is no lock name as the protocol writes it: "+
			"other clients do not see this lock, and nothing removes it", text.Clip(segment, maxQuoted))}},
		r.Problems...)
}
